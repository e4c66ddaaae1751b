"""Tools that agents are given.

Each room has its tools, the protocol of the backend that they work through, and the backend for this machine;
`coding` and `extensions` bundle them for `perdure.tools`, `origin` labels the text that they read.
"""
