"""The model's context: files, roles, skills and directives that add to it, and the history that is sent.

`project`, `prompt_files` and `role_files` read folders, `skills` and `directives` are packages, and `history`
decides what of a long conversation is sent.
"""
