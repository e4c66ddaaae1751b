"""Safe access to files that a user, a project or a model names: regular files only, limited in size, below a folder.

Every path in a configuration, prompt, role, skill, mention (`@file`) or call of our own tools is opened here and
nowhere else, so that one place decides about links, sizes and names that often mean secrets.
"""
