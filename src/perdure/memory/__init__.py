"""Memory of agents: shapes, which choose the messages that are sent; and long-term memory in an SQLite file."""
