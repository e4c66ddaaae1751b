"""JSON tool mode: tools for endpoints that have none. Above: the catalogue, `local`. Below: `core`.

A request with tools becomes one without: the tools are described in the instructions, and the reply is held to a JSON
object that is either a call or the answer. Earlier calls and results are told in the same form. As each reply is held
to it, even a small model makes well-formed calls.

    mode        the wrapper
    question    what the endpoint is asked instead
    history     what was said before, in the same form
    reply       the reply, read as it comes
    pieces      JSON that comes in pieces
"""

from .mode import json_tools

__all__ = ["json_tools"]
