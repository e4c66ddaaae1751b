# Written by `python -m scripts.exports`, from the table in mcp.py. Not edited by hand.

from ._mcp.catalogue import CatalogueEntry as CatalogueEntry
from ._mcp.catalogue import ChooseServer as ChooseServer
from ._mcp.catalogue import DiscoveryPolicy as DiscoveryPolicy
from ._mcp.catalogue import McpCatalogue as McpCatalogue
from ._mcp.client.client import FateUnknown as FateUnknown
from ._mcp.client.client import McpClient as McpClient
from ._mcp.client.client import McpError as McpError
from ._mcp.login.auth import build_login_resolver as build_login_resolver
from ._mcp.login.file import LoginFile as LoginFile
from ._mcp.login.file import StoredLogin as StoredLogin
from ._mcp.login.flow import log_in as log_in
from ._mcp.pins import PinFile as PinFile
from ._mcp.pins import ToolChange as ToolChange
from ._mcp.server.agents import ServedAgent as ServedAgent
from ._mcp.server.clients import ClientLimits as ClientLimits
from ._mcp.server.clients import ClientTokens as ClientTokens
from ._mcp.server.http_app import McpApp as McpApp
from ._mcp.server.serving import build_app as build_app
from ._mcp.server.serving import serve_http as serve_http
from ._mcp.server.serving import serve_stdio as serve_stdio
from ._mcp.servers import HeaderResolver as HeaderResolver
from ._mcp.servers import McpClientPool as McpClientPool
from ._mcp.servers import McpServers as McpServers
from ._mcp.settings import McpServer as McpServer
from ._mcp.settings import McpTransport as McpTransport

__all__ = [
    "CatalogueEntry",
    "ChooseServer",
    "ClientLimits",
    "ClientTokens",
    "DiscoveryPolicy",
    "FateUnknown",
    "HeaderResolver",
    "LoginFile",
    "McpApp",
    "McpCatalogue",
    "McpClient",
    "McpClientPool",
    "McpError",
    "McpServer",
    "McpServers",
    "McpTransport",
    "PinFile",
    "ServedAgent",
    "StoredLogin",
    "ToolChange",
    "build_app",
    "build_login_resolver",
    "log_in",
    "serve_http",
    "serve_stdio",
]
