"""Sessions in one SQLite file, which several processes may share. `store.py` is the store; the rest lies below it."""
