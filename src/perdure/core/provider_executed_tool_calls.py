"""Tool calls that the model provider executes itself after approval. They pass the permission gate like any other."""

import re
from typing import Any

from .message import ToolCall
from .provenance import UNTRUSTED_LABEL
from .schema import build_parameters_from_json_schema
from .tool import Arguments, Tool, ToolContext

APPROVED = "Approved. The provider makes the call."
"""Result of a call that the provider was allowed to make."""

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME_LENGTH = 64


def build_permission_only_tool(call: ToolCall) -> Tool[..., Any]:
    """Build a substitute tool for a call that the provider executes itself: it only asks for permission."""
    return Tool(
        name=_NOT_IN_A_NAME.sub("_", call.name)[:_MAX_NAME_LENGTH] or "_",
        description="A tool that the provider of the model runs.",
        parameters=build_parameters_from_json_schema({"type": "object"}),
        call=_approve,
        effect="read",
        permission=True,
        source="provider",
        labels=(UNTRUSTED_LABEL,),  # what it finds comes with the reply
        sends=True,
    )


async def _approve(_arguments: Arguments, _context: ToolContext[Any]) -> str:
    return APPROVED
