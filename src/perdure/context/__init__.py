"""The model's context: project files, roles, skills and directives that add to it, and compaction that shortens it."""
