"""Sessions in a PostgreSQL database, which machines may share. `store.py` is the store; the rest lies below it."""
