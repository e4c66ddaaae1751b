"""The kernel of the runtime, on the standard library and msgspec alone.

A room imports only the rooms before it: `values`, `schema`, `model`, `log`, `permission`, `people`, `tools`,
`run`. Start with `run/loop.py`; `watch` delivers events to watchers, each through a `buffer`.
"""
