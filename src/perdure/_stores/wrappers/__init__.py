"""Stores around another store.

`listened` calls functions after each operation, `namespace` uses the sessions of one prefix.
"""
