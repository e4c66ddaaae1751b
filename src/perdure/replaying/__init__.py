"""A kept session as a recording: run again offline, and compared with what happened.

`replay.py` is the face. It reads the record (`record.py`), plays it to the agent as it is now (`tape.py`,
`doubles.py`), and tells the first place where the two differ (`check.py`, `diff.py`).
"""
