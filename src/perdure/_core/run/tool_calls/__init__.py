"""Tool calls, step by step.

`preparation`, `approval`, then a `batch` of them, in which each has its `execution`; `questions` to people on the way,
and `direct` calls, which no model requested.
"""
