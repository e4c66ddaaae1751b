"""Replay a stored session offline, and compare it with its log.

`replay.py` is the entry point. It reads the log (`recording.py`), plays it to the agent as it is now (`playback.py`,
`doubles.py`), and reports the first difference (`compare.py`, `diff.py`).
"""
