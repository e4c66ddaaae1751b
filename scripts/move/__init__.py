"""Moves modules: renames files by a table, and rewrites every place that names them."""
