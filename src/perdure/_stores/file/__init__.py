"""A store that keeps each session in a file in one folder, which several processes may share.

`store` is its class, `folder` has the operations, `log_file` an open log.
"""
