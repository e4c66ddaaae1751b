"""Search in files.

The tools `glob` and `grep`, the `patterns` that they take, the protocol in `backend`, and `local`, which uses
`ripgrep` or Python.
"""
