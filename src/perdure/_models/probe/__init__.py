"""Probe an endpoint with a few small requests, to write its profile.

`endpoint` runs the `experiments` through a `client`.
"""
