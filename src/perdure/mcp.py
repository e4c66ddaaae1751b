"""MCP: tools of servers for agents, and agents for clients."""

from ._facade import export

NAMES_BY_MODULE = {
    "._mcp.catalogue": ("CatalogueEntry", "ChooseServer", "DiscoveryPolicy", "McpCatalogue"),
    "._mcp.client.client": ("FateUnknown", "McpClient", "McpError"),
    "._mcp.login.auth": ("build_login_resolver",),
    "._mcp.login.file": ("LoginFile", "StoredLogin"),
    "._mcp.login.flow": ("log_in",),
    "._mcp.pins": ("PinFile", "ToolChange"),
    "._mcp.server.agents": ("ServedAgent",),
    "._mcp.server.clients": ("ClientLimits", "ClientTokens"),
    "._mcp.server.http_app": ("McpApp",),
    "._mcp.server.serving": ("build_app", "serve_http", "serve_stdio"),
    "._mcp.servers": ("HeaderResolver", "McpClientPool", "McpServers"),
    "._mcp.settings": ("McpServer", "McpTransport"),
}
"""The public names, by the module that defines them."""

__all__, __getattr__, __dir__ = export(__name__, NAMES_BY_MODULE)
