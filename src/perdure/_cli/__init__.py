"""The `perdure` command: `main.py`, and a folder for each kind of subcommand."""
