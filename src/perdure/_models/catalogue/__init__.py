"""Facts about providers and models, known without asking them.

`providers` (rows of `entry`) and model `families` are tables, `prices` and `saved_profiles` look things up,
`base_url` finds the address of a provider, and `status` says which can be used here.
"""
