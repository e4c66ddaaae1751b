"""Tools that an endpoint refuses, left out so that the others work. Above: `endpoint.py`. Below: `core`.

One schema that a provider does not take makes it refuse the whole request. When its error says which tool it was, that
tool is left out of what this endpoint is asked from then on, and somebody is told.
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
"""Where in the list of tools: `tools[3].function.parameters`, `tools.3.custom.input_schema`."""
_ABOUT_TOOL = re.compile(r"schema|parameters|\bname\b|description|toolspec", re.IGNORECASE)
_NOT_ABOUT_TOOL = re.compile(r"^\]?\.?(?:\w+\.)?(?:cache_control|type\b)", re.IGNORECASE)
_TROUBLE = re.compile(
    r"schema|function_? ?declaration|(?:function|tool) (?:name|definition)|parameters (?:for|of)|"
    r"invalid (?:function|tool)\b|parameters are invalid",
    re.IGNORECASE,
)
"""Signs that a tool is described in a way which is not accepted."""
_ELSEWHERE = re.compile(
    r"response_?format|output_?format|output_config|response_?schema|text\.format|tool_?choice", re.IGNORECASE
)
"""Signs that it is not about a tool, though it may name one."""
_NEAR = 120


class Quarantine:
    """What one endpoint has refused."""

    def __init__(self) -> None:
        self._held: dict[str, ToolSpec] = {}

    def __repr__(self) -> str:
        return f"Quarantine({sorted(self._held)})"

    def without(self, request: Request) -> Request:
        """The request without the tools that were refused; the very same one when it has none of them.

        A tool that the model is told to call stays, for better or worse, and so do all when it is told to call any and
        none would be left. A tool that has changed since is tried again.
        """
        if not self._held:
            return request
        choice = request.settings.tool_choice
        left = [tool for tool in request.tools if tool.name == choice or not self._holds(tool)]
        if len(left) == len(request.tools) or (not left and choice == "required"):
            return request
        if left:
            return msgspec.structs.replace(request, tools=left)
        settings = msgspec.structs.replace(request.settings, tool_choice=None, parallel_tool_calls=None)
        return msgspec.structs.replace(request, tools=(), settings=settings)

    def blamed(self, error: ModelError, asked: Request) -> str | None:
        """When the error is about a tool of what was asked: leave it out from now on. The words of a warning, or None.

        `asked` is the request as it was sent: another one may have had a tool left out meanwhile, and a place in the
        list would then be that of an innocent.
        """
        if not isinstance(error, BadRequest):
            return None
        sent = asked.tools
        guilty = [sent[place] for place in _positions(str(error)) if place < len(sent)] or _named(str(error), sent)
        choice = asked.settings.tool_choice
        if (
            not guilty
            or any(tool.name == choice for tool in guilty)
            or (choice == "required" and len(guilty) >= len(sent))
        ):
            return None
        self._held |= {tool.name: tool for tool in guilty}
        names = ", ".join(repr(tool.name) for tool in guilty)
        which = f"the tool {names} is" if len(guilty) == 1 else f"the tools {names} are"
        return f"{which} left out from now on: {error} Give it a plainer schema, or leave it out for this model."

    def _holds(self, tool: ToolSpec) -> bool:
        held = self._held.get(tool.name)
        return held is not None and (held is tool or held == tool)


def _positions(text: str) -> list[int]:
    """Which places of the list of tools an error speaks of, each once."""
    for pattern in _POSITIONS:
        found = [
            int(match[1]) - _counts_from_one(match["rest"])
            for match in pattern.finditer(text)
            if _ABOUT_TOOL.search(match["rest"]) and not _NOT_ABOUT_TOOL.match(match["rest"])
        ]
        if found:
            return list(dict.fromkeys(place for place in found if place >= 0))
    return []


def _counts_from_one(rest: str) -> bool:
    """The validation of AWS does: `toolConfig.tools.1.member.toolSpec.name` is the first tool."""
    return rest.startswith(".member")


def _named(text: str, tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """The tool whose name stands in quotes, next to words about schemas."""
    if _ELSEWHERE.search(text):
        return []
    for tool in tools:
        for match in re.finditer(rf"['\"`‘“]{re.escape(tool.name)}['\"`’”]", text):  # noqa: RUF001 - quotes as they come
            if _TROUBLE.search(text[max(0, match.start() - _NEAR) : match.end() + _NEAR]):
                return [tool]
    return []
