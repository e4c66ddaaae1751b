"""Code mode, in which the model writes programs that call tools.

`mode` has the tool, `interpreter` runs the programs, `stubs` describes tools as Python functions.
"""
