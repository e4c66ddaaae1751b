"""The agent loop and its parts: messages, events, the log, tools, permissions. Imports nothing of Perdure outside this
folder.

Start with `loop.py`; everything it touches is described by a file of the same folder.
"""
