"""Whether a tool call may run.

A `request` is decided by a `gate`, by `rules` and remembered `grants`, and by the gates above it (`inherited`);
`targets` has what rules match.
"""
