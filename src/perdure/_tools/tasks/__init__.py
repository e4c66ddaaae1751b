"""Lists that the model keeps.

A `task_list` that it rewrites, a `todo` list that it changes item by item, a page of notes, and their `storage`.
"""
