"""Sessions in a folder, one file for each, which several processes may share. `store.py` is the store."""
