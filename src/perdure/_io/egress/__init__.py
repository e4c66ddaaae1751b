"""Requests on behalf of a model, a web page or a server.

`policy` decides, `resolver` checks each address, `client` and `proxy` apply it.
"""
