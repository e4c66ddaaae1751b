"""A store that keeps sessions in a PostgreSQL database, which several machines may share. See `store.py`."""
