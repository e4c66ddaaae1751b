"""Handle tools that an endpoint rejects: leave them out of later requests, so that the others keep working.

A provider rejects a whole request if it does not accept the schema of one tool. If its error identifies that tool, the
tool is left out of later requests to this endpoint, and a warning is emitted.
"""

import re
from collections.abc import Sequence

import msgspec

from perdure.core.error import BadRequest, ModelError
from perdure.core.model import Request, ToolSpec

_POSITIONS = (
    re.compile(r"function_?declarations(?:\[|\.)(\d{1,4})(?!\d)(?=(?P<rest>.{0,80}))", re.IGNORECASE),
    re.compile(r"\btools(?:\[|\.)(\d{1,4})(?!\d|\]?\.function_?declarations)(?=(?P<rest>.{0,80}))", re.IGNORECASE),
)
"""Index of a tool in an error message: `tools[3].function.parameters`, `tools.3.custom.input_schema`."""
_ABOUT_TOOL = re.compile(r"schema|parameters|\bname\b|description|toolspec", re.IGNORECASE)
_NOT_ABOUT_TOOL = re.compile(r"^\]?\.?(?:\w+\.)?(?:cache_control|type\b)", re.IGNORECASE)
_TOOL_PROBLEM = re.compile(
    r"schema|function_? ?declaration|(?:function|tool) (?:name|definition)|parameters (?:for|of)|"
    r"invalid (?:function|tool)\b|parameters are invalid",
    re.IGNORECASE,
)
"""Phrases which show that a tool definition was rejected."""
_OTHER_PROBLEM = re.compile(
    r"response_?format|output_?format|output_config|response_?schema|text\.format|tool_?choice", re.IGNORECASE
)
"""Phrases which show that the error is about something else, though it may name a tool."""
_CONTEXT_CHARACTERS = 120


class RejectedTools:
    """Set of the tools that one endpoint has rejected, which later requests leave out."""

    def __init__(self) -> None:
        self._rejected: dict[str, ToolSpec] = {}

    def __repr__(self) -> str:
        return f"RejectedTools({sorted(self._rejected)})"

    def remove_rejected_tools(self, request: Request) -> Request:
        """Return the request without the rejected tools; the same object if it has none of them.

        A tool that `tool_choice` forces is kept, and all tools are kept if `tool_choice` is `required` and none would
        be left. A tool whose definition has changed is sent again.
        """
        if not self._rejected:
            return request
        choice = request.settings.tool_choice
        left = [tool for tool in request.tools if tool.name == choice or not self._is_rejected(tool)]
        if len(left) == len(request.tools) or (not left and choice == "required"):
            return request
        if left:
            return msgspec.structs.replace(request, tools=left)
        settings = msgspec.structs.replace(request.settings, tool_choice=None, parallel_tool_calls=None)
        return msgspec.structs.replace(request, tools=(), settings=settings)

    def quarantine_from_error(self, error: ModelError, sent_request: Request) -> str | None:
        """Add the tools that an error is about, and return a warning; `None` if it is about no tool.

        `sent_request` is the request as it was sent. A concurrent request may have quarantined a tool meanwhile, and an
        index in the error would then point at the wrong tool.
        """
        if not isinstance(error, BadRequest):
            return None
        sent = sent_request.tools
        guilty = [sent[place] for place in _find_tool_indexes(str(error)) if place < len(sent)] or _find_quoted_tool(
            str(error), sent
        )
        choice = sent_request.settings.tool_choice
        if (
            not guilty
            or any(tool.name == choice for tool in guilty)
            or (choice == "required" and len(guilty) >= len(sent))
        ):
            return None
        self._rejected |= {tool.name: tool for tool in guilty}
        names = ", ".join(repr(tool.name) for tool in guilty)
        which = f"the tool {names} is" if len(guilty) == 1 else f"the tools {names} are"
        return f"{which} left out from now on: {error} Simplify its schema, or do not offer it to this model."

    def _is_rejected(self, tool: ToolSpec) -> bool:
        held = self._rejected.get(tool.name)
        return held is not None and (held is tool or held == tool)


def _find_tool_indexes(text: str) -> list[int]:
    """Return the indexes of tools that an error message refers to, without duplicates."""
    for pattern in _POSITIONS:
        found = [
            int(match[1]) - _is_one_based(match["rest"])
            for match in pattern.finditer(text)
            if _ABOUT_TOOL.search(match["rest"]) and not _NOT_ABOUT_TOOL.match(match["rest"])
        ]
        if found:
            return list(dict.fromkeys(place for place in found if place >= 0))
    return []


def _is_one_based(rest: str) -> bool:
    """Return True if the index in an error counts from 1, as in `toolConfig.tools.1.member.toolSpec.name` of AWS."""
    return rest.startswith(".member")


def _find_quoted_tool(text: str, tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Return the tool whose quoted name is near a phrase about schemas in an error text."""
    if _OTHER_PROBLEM.search(text):
        return []
    for tool in tools:
        for match in re.finditer(rf"['\"`‘“]{re.escape(tool.name)}['\"`’”]", text):  # noqa: RUF001 - any quotation marks
            if _TOOL_PROBLEM.search(
                text[max(0, match.start() - _CONTEXT_CHARACTERS) : match.end() + _CONTEXT_CHARACTERS]
            ):
                return [tool]
    return []
