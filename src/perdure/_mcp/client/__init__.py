"""Client of MCP servers.

`client` connects to one server when needed, over a `connection` and its `transports`; `listing` checks what it
lists and limits what it sends, and `tools` makes `Tool`s of them.
"""
