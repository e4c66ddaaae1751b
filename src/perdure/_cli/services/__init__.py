"""Commands about what agents use: configuration, models, MCP servers, memories, permissions, skills, trust."""
