"""Processes that the runtime starts.

Below a `supervisor`, as a bounded `program`, as a server on standard input and output, with a private folder.
"""
