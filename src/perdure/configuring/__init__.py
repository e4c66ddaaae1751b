"""How a configuration file is read: its source, its lines, its tables, and what it may say before it is trusted."""
