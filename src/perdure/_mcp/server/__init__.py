"""MCP server: serve agents and tools to MCP (Model Context Protocol) clients, over stdio and streamable HTTP.

The official SDK is imported when a server starts, not before: `pip install 'perdure[mcp]'`.
"""

from .agents import ServedAgent
from .clients import ClientLimits, ClientTokens
from .serving import build_app, serve_http, serve_stdio

__all__ = ["ClientLimits", "ClientTokens", "ServedAgent", "build_app", "serve_http", "serve_stdio"]
