"""The log of a session.

`store` has the protocols and the writer, `codec` the format, `fold` (with `fold_people`) the state that follows from
it, `past_runs` what is over; `repair` after a crash, `status` without folding, `redaction` of what must not stay.
"""
