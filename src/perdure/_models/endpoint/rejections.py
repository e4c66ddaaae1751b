"""Remember what one endpoint rejects: forms of requests, which are then changed, and tools, which are left out."""

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.model.protocol import Request, Settings, ToolSpec
from perdure._core.values.error import BadRequest, ModelError

from .profile import Profile

MAX_SESSIONS = 1_000
"""Maximum number of sessions whose accepted form is remembered."""


class RefusalRule(Struct, frozen=True, kw_only=True):
    """Kind of refusal, and what is changed after it."""

    pattern: re.Pattern[str]
    """Searched in the text of the error."""
    profile: Mapping[str, Any] = {}
    """Fields of the profile that change, for all later requests to the endpoint."""
    settings: Mapping[str, Any] = {}
    """Settings that change for this session alone: its history is what was refused."""
    notice: str
    """What is told about the change."""

    def change_profile(self, profile: Profile) -> Profile:
        """Return the profile with the changes of this rule."""
        return replace(profile, **self.profile) if self.profile else profile

    def change_settings(self, settings: Settings) -> Settings:
        """Return the settings with the changes of this rule."""
        return replace(settings, **self.settings) if self.settings else settings


def _compile(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_REASONING_FIELD = r"\breasoning(?:_content|_details)?\b"
_MISSING_THINKING = _compile(
    r"(?:reasoning_content|thinking)\b.{0,80}must be (?:passed|sent) back",
    r"reasoning_content\b.{0,60}\bmissing",
    r"missing.{0,20}reasoning_content",
)
RULES: tuple[RefusalRule, ...] = (
    RefusalRule(
        pattern=_MISSING_THINKING,
        profile={"needs_reasoning": True},
        notice="turns without thinking get a placeholder from now on",
    ),
    RefusalRule(
        pattern=_MISSING_THINKING,
        settings={"thinking": "off"},
        notice="thinking is off in this session from now on",
    ),
    RefusalRule(
        pattern=_compile(
            r"signature\b.{0,60}(?:invalid|not valid|corrupt|mismatch)",
            r"(?:invalid|corrupt\w*|bad)\b.{0,30}signature",
            r"encrypted[ _]content\b.{0,400}(?:could not be|cannot be|not issued|invalid)",
            r"thinking\b.{0,80}(?:blocks? cannot be modified|must remain as they were|cannot be modified)",
            r"expected `?(?:redacted_)?thinking`?.{0,60}but found",
            rf"{_REASONING_FIELD}['\"`)\]]*.{{0,30}}(?:unsupported|extra inputs|not permitted|extra_forbidden)",
            rf"(?:extra inputs|extra_forbidden|unknown|unexpected|unsupported).{{0,200}}{_REASONING_FIELD}",
            r"\bitem\b.{0,80}\brs_\w+.{0,80}(?:not found|without its required)",
            r"type '?reasoning'?.{0,60}(?:without its required|not found)",
        ),
        settings={"echo_reasoning": False},
        notice="the model's earlier thinking is left out in this session from now on",
    ),
    RefusalRule(
        pattern=_compile(r"tools?\b.{0,40}reasoning_effort.{0,40}not supported"),
        profile={"thinks_with_tools": False},
        notice="the model does not think in requests with tools from now on",
    ),
    RefusalRule(
        pattern=_compile(
            r"unsupported (?:parameter|value)\W{1,4}(?:temperature|top_p)\b",
            r"\b(?:temperature|top_p)\b['\"`]?.{0,40}(?:not supported|unsupported|deprecated|does not support)",
        ),
        profile={"sampling": False},
        notice="temperature and top_p are left out from now on",
    ),
)
"""All rules. The first one applies that matches the error and still changes something."""


class NextForm(Struct, frozen=True):
    """Form in which a refused request may be sent once more."""

    request: Request
    profile: Profile
    rule: RefusalRule
    notice: str
    """What was refused, and what is changed."""


class RefusedForms:
    """The forms of requests that one endpoint has refused, by session."""

    def __init__(self) -> None:
        self._rules_by_session: OrderedDict[str, tuple[RefusalRule, ...]] = OrderedDict()

    def adapt_request(self, request: Request) -> Request:
        """Return the request in the form that was accepted in its session; the same object if none was refused."""
        rules = self._rules_by_session.get(request.session_id) if request.session_id else None
        if rules is None:
            return request
        settings = request.settings
        for rule in rules:
            settings = rule.change_settings(settings)
        return replace(request, settings=settings)

    def record_form(self, form: NextForm) -> None:
        """Send later requests of the same session in this form."""
        session_id = form.request.session_id
        if form.rule.settings and session_id:
            rules = self._rules_by_session.pop(session_id, ())
            self._rules_by_session[session_id] = (*rules, form.rule)
            if len(self._rules_by_session) > MAX_SESSIONS:
                self._rules_by_session.popitem(last=False)


def find_next_form(error: ModelError, sent: Request, profile: Profile) -> NextForm | None:
    """Return the form to try next; `None` if the error is about something else, or all was tried.

    Every form is found at most once, since a rule that changes nothing more does not apply.
    """
    if not isinstance(error, BadRequest):
        return None
    for rule in RULES:
        if not rule.pattern.search(str(error)):
            continue
        changed, settings = rule.change_profile(profile), rule.change_settings(sent.settings)
        if changed != profile or settings != sent.settings:
            return NextForm(replace(sent, settings=settings), changed, rule, f"{rule.notice}: {error}")
    return None


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
