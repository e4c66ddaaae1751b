"""What permission rules match.

A `path`, a `command`, a `url` or `text`, each with its patterns; `patterns` reads what a rule has written.
"""
