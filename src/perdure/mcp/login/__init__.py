"""Logins to MCP servers: OAuth 2.1 with PKCE, stored tokens, and the header that they become."""
