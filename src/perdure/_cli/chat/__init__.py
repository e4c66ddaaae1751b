"""The chat of `perdure` without a subcommand: a terminal program over one `Session`, or plain lines."""
