"""A tool call, step by step.

`preparation`, `approval`, `execution`; `questions` to people on the way, and `direct` calls, which no model
requested.
"""
