"""HTTP for models and tools.

`transport` has the protocols and errors, `pooled` the transport on top of `pool`, `sse` and `body` read
responses, `tap` observes them.
"""
