"""The command line: `main.py` and a file per command. Above: a person or a script. Below: the assembly.

A module of a command imports click and little else; what takes time to load is imported when the command runs.
"""
