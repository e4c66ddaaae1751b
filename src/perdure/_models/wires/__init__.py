"""API formats (wires): each encodes requests, decodes responses and lints bodies, without I/O.

`load_wire` finds the `WIRE` of a package or module here by its name; the other modules are what several wires
share.
"""
