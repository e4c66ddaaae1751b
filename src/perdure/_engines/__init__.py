"""Engines, which decide how the turns and tool calls of a run follow each other.

`registry` opens one by its name, from the module of that name; what an engine asks aside is a `private_run`.
"""
