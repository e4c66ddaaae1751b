"""What lies in the file of an SQLite store.

`schema` its tables, `rows` the encoding of entries, `merging` of rows, `pages` SQLite's own.
"""
