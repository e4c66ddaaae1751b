"""Classify a provider's error response as one of Perdure's errors.

No I/O. `classify` decides by the tables of `codes`, from what `response` finds in the response.
"""
