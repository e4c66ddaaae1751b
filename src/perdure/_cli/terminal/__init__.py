"""The terminal: what is printed, framed and asked there."""
