"""The part of a long conversation that is sent to the model.

`compaction` replaces its start by a `summary` that one of the `strategies` makes, `long_results` shortens tool
results, `search_tools` find what was left out, and `tokens` estimates sizes.
"""
