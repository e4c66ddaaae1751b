"""Writing to an SQLite store.

`scheduler` orders the `jobs` of a process; `leases`, `erasure` and `single_append` are what they do.
"""
