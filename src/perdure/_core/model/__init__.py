"""The interface to a model (`protocol`), and what wraps or feeds it.

`wrappers` and `failover` on top of it, a shared `budget`, the `transcript` that is sent and the prompt `cache`,
and limits and JSON of a reply (`size_limit`, `json_reply`).
"""
