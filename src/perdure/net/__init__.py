"""HTTP transport and server-sent events: the only code that uses the network."""
