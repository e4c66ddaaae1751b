"""Safe access to files that a user, a project or a model names.

Regular files only, limited in size, below a folder. `jail` is what tools get; `folder_look` and `snapshots` serve
the undo of changes.
"""
