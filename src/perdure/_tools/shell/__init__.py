"""Commands.

`tools` runs them through the protocol in `backend`, after `parser` and `read_only` have told what a command does;
`local` runs them on this machine, in `_tools.sandbox`.
"""
