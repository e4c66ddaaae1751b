"""JSON tool mode: lets models call tools at endpoints without tool support, by asking for JSON replies.

A request with tools becomes one without: the tools are described in the instructions, and the reply is constrained to a
JSON object that is either a tool call or the answer. Earlier calls and results are rewritten in the same form. As each
reply is constrained, even a small model makes well-formed calls.

    mode        the wrapper
    question    the request that is sent instead
    history     earlier messages in the same form
    reply       streaming parser of the reply
    pieces      incremental JSON scanning
"""

from .wrapper import json_tools

__all__ = ["json_tools"]
