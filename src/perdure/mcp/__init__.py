"""Settings of MCP (Model Context Protocol) servers: the command that starts one, or its URL."""
