"""How much a model may think and write. Pure. Above: `encode.py`, and the Bedrock wire. Below: `dialect.py`.

A budget for thinking is a part of what may be written, has to be smaller than it, and has a least size.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from perdure.core.message import Message, Thinking, ToolCall
from perdure.core.model import Request, Settings
from perdure.models.profile import Profile

from .dialect import Dialect

DEFAULT_OUTPUT_TOKENS = 8192
"""How much may be written when nobody says and nobody knows how much the model can."""
LEAST_BUDGET = 1024
"""Of thinking; less is refused."""

_BUDGETS = {"minimal": LEAST_BUDGET, "low": 2048, "medium": 8192, "high": 24576}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}
_OFF = {"type": "disabled"}
_FREE_CHOICES = frozenset({None, "auto", "none"})


class Plan(Struct, frozen=True):
    """What is asked about thinking."""

    max_tokens: int
    """How much may be written, thinking included."""
    thinking: Mapping[str, Any] | None = None
    """The parameter of that name; `None` leaves it to the model."""
    effort: str = ""
    """How hard to try, for models that are told so."""

    @property
    def thinks(self) -> bool:
        """Whether the model was asked to think."""
        return self.thinking is not None and self.thinking["type"] != "disabled"


def plan(request: Request, profile: Profile, dialect: Dialect) -> Plan:
    """What to ask of this model for this request."""
    settings = request.settings
    most = _most_tokens(settings, profile)
    if dialect.thinking == "none" or not (wanted := _wants(settings)):
        off = dialect.thinking == "adaptive" and _refuses(settings)
        return Plan(most, _OFF if off else None)
    if settings.tool_choice not in _FREE_CHOICES or not _may_think(request, profile):
        # A call cannot be forced on a model that thinks. Nor may one begin to think in the middle of a turn; it is
        # the conversation that decides then, since whoever forces a call depends on it.
        return Plan(most, _OFF if dialect.thinking == "adaptive" else None)
    if dialect.budgets and (dialect.thinking == "budget" or settings.reasoning_tokens):
        return _budgeted(settings, profile, most)
    shown = {"type": "adaptive", "display": "summarized"}  # the newest ones show nothing unless they are asked to
    return Plan(most, shown, _effort(settings) if wanted != "on" else "")


def _most_tokens(settings: Settings, profile: Profile) -> int:
    able = profile.max_output_tokens
    asked = settings.max_output_tokens or able or DEFAULT_OUTPUT_TOKENS
    return min(asked, able) if able else asked


def _refuses(settings: Settings) -> bool:
    return settings.reasoning_effort == "none" or settings.reasoning_tokens == 0 or settings.thinking == "off"


def _wants(settings: Settings) -> str:
    """Why the model is to think; nothing when it was not asked to."""
    if _refuses(settings):
        return ""
    if settings.reasoning_tokens:
        return "tokens"
    return settings.reasoning_effort or ("on" if settings.thinking == "on" else "")


def _effort(settings: Settings) -> str:
    if settings.reasoning_effort:
        return _EFFORTS[settings.reasoning_effort]
    tokens = settings.reasoning_tokens or 0
    return next((_EFFORTS[name] for name, budget in _BUDGETS.items() if tokens <= budget), "high")


def _budgeted(settings: Settings, profile: Profile, most: int) -> Plan:
    wanted = settings.reasoning_tokens or _BUDGETS[settings.reasoning_effort or "medium"]
    if settings.max_output_tokens is None and profile.max_output_tokens is None:
        most += wanted  # so that there is as much room for the answer as without thinking
    if settings.reasoning_tokens is None or wanted >= most:
        wanted = min(wanted, most * 4 // 5)
    budget = max(LEAST_BUDGET, wanted)
    if budget >= most:  # no room to think
        return Plan(most)
    return Plan(most, {"type": "enabled", "budget_tokens": budget})


def _may_think(request: Request, profile: Profile) -> bool:
    """Whether the turn that is going on, if one is, began with a thought that goes back to its author.

    One that began without, because another model wrote it or because thinking was off, has to end without.
    """
    first = _first_reply(request.messages)
    if first is None or not any(type(part) is ToolCall for part in first.parts):
        return True
    if request.settings.echo_reasoning is False or not profile.wrote(first.provider, first.model):
        return False
    return any(type(part) is Thinking and (part.signature or part.data) for part in first.parts)


def _first_reply(messages: Sequence[Message]) -> Message | None:
    """What the model said first since somebody else spoke. Words that follow results are still the same turn."""
    first: Message | None = None
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.role == "assistant":
            first = message
        elif message.role != "tool" and (place == 0 or messages[place - 1].role != "tool"):
            break
    return first
