"""A server of the stateless protocol, made with the official SDK, that gets one more tool: python growing_server.py"""

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("growing")


def later() -> str:
    """Come later."""
    return "here"


@server.tool()
async def grow(context: Context) -> str:
    """Get one more tool, and tell those who have subscribed to changes."""
    server.add_tool(later)
    await context.notify_tools_changed()
    return "grown"


if __name__ == "__main__":
    server.run("stdio")
