"""JSON Schemas of tools and outputs.

From functions (`signature`, `docstring`), of any origin (`parameters`, `definitions`), `parsing` of a call's
arguments, and the `problems` found; `checker` and `work_bound` validate raw schemas.
"""
