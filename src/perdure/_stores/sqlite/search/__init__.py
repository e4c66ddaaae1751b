"""Full-text search in an SQLite store.

`thread` runs it, `query` answers, `index` is the file beside the store, `log_reader` feeds it.
"""
