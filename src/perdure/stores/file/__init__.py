"""A store that keeps each session in a file in one folder; several processes may share it. See `store.py`."""
