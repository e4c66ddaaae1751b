"""Replay a stored session offline, and compare it with its log.

`replay.py` is the entry point. It reads the log (`recorded_log_index.py`), plays it to the agent as it is now
(`recorded_input_playback.py`, `recorded_clock_and_store.py`), and reports the first difference (`log_comparison.py`, `difference_text.py`).
"""
