"""JSON Schemas of tools and outputs, compiled to the dialect (subset) that each provider supports.

`compile` uses `normalize`, `merge`, `build` and `notes`, by the table in `dialects`; `lint` checks the result.
"""
