"""A store that keeps all sessions in one SQLite file, which several processes may share.

`store` is its class, `database` opens the file, `connections` use it, `log` appends and reads.
"""
