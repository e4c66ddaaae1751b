"""MCP (Model Context Protocol) client: connections to servers, and their tools, resources and prompts.

The parts, from the wire up:

- `server_settings.McpServer`: how a server is reached, and what its owner allows it.
- `connection.McpConnection`: one connection, owned by one task. `await connection.perform(function)` calls
  `function(client)` with the client of the official SDK in that task's charge, from any other task.
- `client.McpClient`: a server for one identity (its headers). Connects at first use, again after the connection was
  lost, and stops when idle: `list_tools()`, `call_tool(name, arguments, …)`, `list_resources()`, `read_resource(uri)`,
  `list_prompts()`, `get_prompt(name, arguments)`, `close()`.
- `client_pool.McpClientPool`: the clients of several servers by identity: `get_client(name, headers)`, `add_server`,
  `remove_server`, `close()`. Its `login` function returns the `httpx2.Auth` of a stored login.
- `listed_tool.ListedTool` is a tool as a server lists it, within the limits; `pin_file.PinFile` decides which of them
  are unchanged; `tool_builder.build_tools` makes `Tool`s of them.

`perdure.mcp_extension.McpServers` adds all that to an agent. The SDK (`perdure[mcp]`) is imported at the first
connection.
"""
