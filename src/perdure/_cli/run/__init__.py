"""`perdure run`, and what every command does to build the agent of a folder."""
