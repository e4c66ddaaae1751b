"""Forms of a request that one endpoint has refused, and the forms that it accepts instead.

A conversation may come from another model, another key or another address. What a provider then refuses is mostly what
accompanies the words: thinking that is missing, a signature that it does not know, a setting. The table says what is
changed after which refusal. The request is sent once more, and later ones have the new form at once, so that a history
never makes a session unusable. Nothing is changed in the session itself.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.error import BadRequest, ModelError
from perdure.core.model import Request, Settings

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
