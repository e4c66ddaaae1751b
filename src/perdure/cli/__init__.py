"""The `perdure` command: `main.py` and one module per subcommand.

A command's module imports click and little else at the top; what is slow to load is imported when the command runs.
"""
