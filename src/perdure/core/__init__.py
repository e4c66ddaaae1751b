"""The runtime: values, three callables and a log. Imports nothing of ours outside this folder.

Start with `loop.py`; everything it touches is described by a file of the same folder.
"""
