"""MCP (Model Context Protocol): tools of servers in an agent, and agents for clients.

`servers` and `catalogue` add the tools of servers to an agent, `settings` say how a server is reached, `pins`
which of its tools are approved. `client` connects, `login` authorizes, `server` offers our agents to others.
"""
