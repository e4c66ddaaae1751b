"""Values that every room uses.

`message`, `event` (on `event_class`, with `engine_event`), `error`, where texts come from (`provenance`) and
what approvals are bound to (`binding`); conversion to JSON (`jsonable`), `clock`, argument `checks`, and `faults` for
tests.
"""
