"""The sandbox of commands on Linux.

`bubblewrap` builds it from the `shown_folders`, the `covers` that hide files, the `trusted_files` that are read-
only, and the `seccomp` filter.
"""
