"""Logins to MCP servers, OAuth 2.1 with PKCE.

`flow` logs in, `oauth` makes its requests, `file` stores the tokens, `auth` sends them.
"""
