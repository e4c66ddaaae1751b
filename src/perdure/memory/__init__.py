"""Memory of agents: history processors, which choose the messages that are sent; and long-term memory in SQLite."""
