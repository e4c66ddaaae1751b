"""Read `perdure.toml` and `.mcp.json`: parse, validate, report errors with their lines, and list what needs trust."""
