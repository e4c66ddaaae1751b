"""A store that keeps all sessions in one SQLite file; several processes may share it. See `store.py`."""
