"""Stop conditions, limits and guardrails of a run, which decide when it ends.

They are functions of the run's turns.

The loop calls them at fixed points. None of them raises to end a run: each end is an `Outcome` that keeps the work.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import IntEnum
from typing import Any, Final, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.values import checks
from perdure._core.values.checks import StrictOptionsMeta
from perdure._core.values.error import ConfigError
from perdure._core.values.message import Message, ToolCall, ToolResult

KEPT_FOR_ANSWER: Final = 0.2
"""The part of a run's tokens, money and time that private runs of its engine leave for the answer."""


class DefaultLimit(IntEnum):
    """A limit that nobody has set. It counts as its number, and yields to one that is set: see `merge_limits`."""

    MAX_TURNS = 50
    MAX_CALLS_PER_REPLY = 128
    MAX_PARALLEL_TOOLS = 8

    __repr__ = int.__repr__


class Limits(Struct, frozen=True, kw_only=True, metaclass=StrictOptionsMeta):
    """The limits of a run. `None` is no limit. Reaching one ends the run with status `limit`.

    Given to one run, they are merged with those of its agent: a limit that they do not set is the agent's. On money,
    tokens, time and tools, the stricter of both holds, unless `widens` names it.
    """

    max_turns: int | None = DefaultLimit.MAX_TURNS
    """Replies of the model: 50, if nobody sets a number."""
    token_budget: int | None = None
    """Input and output tokens of the whole run."""
    max_cost_usd: float | None = None
    """Cost in dollars; needs a model whose price is known."""
    timeout_seconds: float | None = None
    """Wall-clock time of the run, without the time in which it waits for an answer to a question."""
    max_tool_calls: int | None = None
    """Calls that are carried out. A call beyond them is refused, and the model may answer; another one ends the run."""
    max_calls_per_reply: int | None = DefaultLimit.MAX_CALLS_PER_REPLY
    """Calls of one reply that are carried out: 128, if nobody sets a number. The others get an error result that says
    so, and the run goes on."""
    max_parallel_tools: int = DefaultLimit.MAX_PARALLEL_TOOLS
    """Calls of one reply that run at the same time: 8, if nobody sets a number."""
    tool_timeout_seconds: float | None = None
    """Timeout of each call of a tool that sets none; the time in which a call waits for an answer does not count."""
    allowed_tools: tuple[str, ...] | None = None
    """The names of the only tools that are offered and run."""
    widens: tuple[str, ...] = ()
    """For one run: the names of those limits here that hold in place of the agent's, also where they allow more."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name == "allowed_tools":
                _check_names(value)
            elif name == "widens":
                if value:
                    _check_limit_names(value)
            elif value is not None or name == "max_parallel_tools":
                _check_amount(name, value)


def _check_amount(name: str, value: object) -> None:
    kind, kinds = ("number", (int, float)) if name.endswith(("_usd", "_seconds")) else ("whole number", (int,))
    if not isinstance(value, kinds) or isinstance(value, bool) or not value > 0:
        otherwise = "" if name == "max_parallel_tools" else ", or None for no limit"
        message = f"Limits({name}={value!r}): give a {kind} above zero{otherwise}"
        raise ConfigError(message)


def _check_names(names: tuple[str, ...] | None) -> None:
    if names is not None and not (isinstance(names, (tuple, list)) and all(isinstance(name, str) for name in names)):
        message = f"Limits(allowed_tools={names!r}): give the names of tools, such as ('shell',), or None for all"
        raise ConfigError(message)


def _check_limit_names(names: object) -> None:
    known = [name for name in Limits.__struct_fields__ if name != "widens"]
    if isinstance(names, (tuple, list)):
        given = cast("Sequence[object]", names)
        unknown = next((each for each in given if each not in known), None)
        if unknown is None:
            return
        near = checks.suggest_name(unknown, known) if isinstance(unknown, str) else ""
        raise ConfigError(
            f"Limits(widens={names!r}): there is no limit {unknown!r}: {near}known are {', '.join(known)}"
        )
    raise ConfigError(f"Limits(widens={names!r}): give the names of limits, such as ('max_cost_usd',)")


_NARROWED: Final = ("token_budget", "max_cost_usd", "timeout_seconds", "max_tool_calls", "tool_timeout_seconds")
"""Limits that protect: of two that are merged, the lower one holds."""
_CHOSEN: Final = ("max_turns", "max_calls_per_reply", "max_parallel_tools")
"""Limits on how the work is done: of two that are merged, the later one holds, if it was set."""


def merge_limits(limits: Limits, later: Limits) -> Limits:
    """Return limits with later ones, such as those for one run, merged into them field by field.

    On money, tokens, time and tools the stricter of both holds; on turns and calls the later one, if it is set. Those
    that `later.widens` names hold as they are.
    """
    changes = {name: _lower(getattr(limits, name), getattr(later, name)) for name in _NARROWED}
    changes |= {name: value for name in _CHOSEN if not isinstance(value := getattr(later, name), DefaultLimit)}
    if limits.allowed_tools is None:
        changes["allowed_tools"] = later.allowed_tools
    elif later.allowed_tools is not None:
        changes["allowed_tools"] = tuple([each for each in limits.allowed_tools if each in later.allowed_tools])
    changes |= {name: getattr(later, name) for name in later.widens}
    return replace(limits, **changes, widens=tuple(dict.fromkeys([*limits.widens, *later.widens])))


def _lower(one: Any, other: Any) -> Any:
    return other if one is None or (other is not None and other < one) else one


class Step(Struct, frozen=True):
    """The last turn, as stop conditions and guardrails get it: a reply with its tool calls and results, or an answer.

    Guardrails get only turns with tool calls.
    """

    turn: int
    """The number of the turn, from 1."""
    reply: Message
    calls: Sequence[ToolCall]
    """The calls of the reply, in order; none for an answer."""
    results: Sequence[ToolResult]
    """The result of each call, in the order of the calls."""
    messages: Sequence[Message]
    """The transcript up to here."""


def rebuild_steps(messages: Sequence[Message], first: int) -> list[Step]:
    """Rebuild the turns with tool calls of a resumed run, from message `first` on, for its guardrails."""
    steps: list[Step] = []
    turn = 0
    for place in range(first, len(messages)):
        reply = messages[place]
        turn += reply.role == "assistant"
        if reply.tool_calls:
            results = messages[place + 1].tool_results
            steps.append(Step(turn, reply, reply.tool_calls, results, messages[: place + 2]))
    return steps


StopCondition: TypeAlias = Callable[[Step], bool | Awaitable[bool]]
"""A function called after each turn, unless a steering message has just arrived, or the reply has ended the run by
itself: one that was cut off (`length`) or filtered. `True` ends the run; an answer that ends it anyway is `done`."""


async def evaluate_condition(condition: StopCondition, step: Step) -> bool:
    """Call a stop condition, plain or async, with the last turn; return True if the run is to stop."""
    answer = condition(step)
    return bool(await answer if inspect.isawaitable(answer) else answer)


def max_turns(count: int) -> StopCondition:
    """Stop the run after `count` turns, with status `stopped`.

    At `Limits(max_turns=…)` it ends with status `limit` instead.
    """
    if not isinstance(count, int) or count < 1:
        message = f"max_turns({count!r}): give a whole number above zero"
        raise ConfigError(message)
    return lambda step: step.turn >= count


def when_tool_called(*names: str) -> StopCondition:
    """Stop the run once one of these tools was called, whatever its result."""
    if not names or not all(isinstance(name, str) for name in names):
        message = (
            f"when_tool_called({', '.join(map(repr, names))}): give the name of at least one tool, such as 'shell'"
        )
        raise ConfigError(message)
    return lambda step: any(result.name in names for result in step.results)


def any_of(*conditions: StopCondition) -> StopCondition:
    """Stop the run when at least one of the conditions is true; with no conditions, never."""
    _check_conditions("any_of", conditions)

    async def condition(step: Step) -> bool:
        for each in conditions:
            if await evaluate_condition(each, step):
                return True
        return False

    return condition


def all_of(*conditions: StopCondition) -> StopCondition:
    """Stop the run when all of the conditions are true; with no conditions, never."""
    _check_conditions("all_of", conditions)

    async def condition(step: Step) -> bool:
        for each in conditions:
            if not await evaluate_condition(each, step):
                return False
        return bool(conditions)

    return condition


def none_of(*conditions: StopCondition) -> StopCondition:
    """Stop the run when none of the conditions is true (negation); with no conditions, always."""
    _check_conditions("none_of", conditions)

    async def condition(step: Step) -> bool:
        for each in conditions:
            if await evaluate_condition(each, step):
                return False
        return True

    return condition


def _check_conditions(name: str, conditions: Sequence[object]) -> None:
    for each in conditions:
        if not callable(each):
            message = f"{name}({each!r}): give conditions, which are functions of a Step, such as max_turns(3)"
            raise ConfigError(message)


class Nudge(Struct, frozen=True):
    """Returned by a guardrail: send the model this text, and go on."""

    text: str
    count: int = 0

    def __post_init__(self) -> None:
        checks.require_text("Nudge", "text", self.text, non_empty=True)
        checks.require_int("Nudge", "count", self.count)


class Halt(Struct, frozen=True):
    """Returned by a guardrail: end the run."""

    count: int = 0

    def __post_init__(self) -> None:
        checks.require_int("Halt", "count", self.count)


GuardrailVerdict: TypeAlias = Nudge | Halt | None
Guardrail: TypeAlias = Callable[[Step], GuardrailVerdict | Awaitable[GuardrailVerdict]]
"""A plain or async function that watches one run for going in circles; called after each turn that called tools, so it
may keep a count.
"""


def call_guardrails(
    guardrails: Sequence[Guardrail], step: Step
) -> Coroutine[Any, Any, list[tuple[Guardrail, Nudge | Halt]]] | None:
    """Call guardrails with the last turn; return `None` if none objects, else a coroutine that returns their verdicts.

    Otherwise the rest of the work is returned, to be awaited: it returns those that object, each with its verdict, and
    raises `ConfigError` for anything but a `Nudge`, a `Halt` or None.
    """
    for place, each in enumerate(guardrails):
        verdict = each(step)
        if verdict is not None:
            return _collect_verdicts(guardrails[place:], verdict, step)
    return None


async def evaluate_guardrails(guardrails: Sequence[Guardrail], step: Step) -> list[tuple[Guardrail, Nudge | Halt]]:
    """Call guardrails, plain or async, with the last turn; return each guardrail that objects, with its verdict."""
    objecting = call_guardrails(guardrails, step)
    return [] if objecting is None else await objecting


async def _collect_verdicts(
    guardrails: Sequence[Guardrail], verdict: Any, step: Step
) -> list[tuple[Guardrail, Nudge | Halt]]:
    """Return the verdicts of guardrails, the first of which was called and has returned `verdict`."""
    tripped: list[tuple[Guardrail, Nudge | Halt]] = []
    for place, each in enumerate(guardrails):
        if place:
            verdict = each(step)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        if verdict is not None:
            checks.require_return_type("guardrail", each, verdict, (Nudge, Halt), "Nudge(…), Halt(…) or None")
            tripped.append((each, verdict))
    return tripped


def repeated_calls(*, nudge_at: int = 3, halt_at: int = 5) -> Callable[[], Guardrail]:
    """Make a guardrail against repeated tool calls: it nudges the model, then ends the run.

    It counts consecutive turns with the same single call.
    """
    _check_thresholds("repeated_calls", nudge_at, halt_at, first=2)

    def start() -> Guardrail:
        previous: tuple[str, str] | None = None
        streak = 0

        def repeat(step: Step) -> GuardrailVerdict:
            nonlocal previous, streak
            calls = step.calls
            key = (calls[0].name, "".join(calls[0].arguments.split())) if len(calls) == 1 else None
            streak = streak + 1 if key is not None and key == previous else 1
            previous = key
            return None if streak < nudge_at else _nudge_or_halt(streak, nudge_at, halt_at, _REPEAT)

        return repeat

    return start


def mistakes(*, nudge_at: int = 3, halt_at: int = 6) -> Callable[[], Guardrail]:
    """Make a guardrail against turns in which every tool call fails: it nudges the model, then ends the run."""
    _check_thresholds("mistakes", nudge_at, halt_at, first=1)

    def start() -> Guardrail:
        streak = 0

        def mistakes(step: Step) -> GuardrailVerdict:
            nonlocal streak
            for result in step.results:
                if not result.is_error:
                    streak = 0
                    return None
            streak += 1
            return None if streak < nudge_at else _nudge_or_halt(streak, nudge_at, halt_at, _MISTAKES)

        return mistakes

    return start


_REPEAT = (
    "You have made the same call {count} times in a row. It will not give another result: "
    "use what you have, or try something else."
)
_MISTAKES = (
    "Every call of the last {count} turns failed. Read the errors, and change your approach or say what is missing."
)


def _nudge_or_halt(streak: int, nudge_at: int, halt_at: int, text: str) -> GuardrailVerdict:
    if streak >= halt_at:
        return Halt(streak)
    return Nudge(text.format(count=streak), streak) if streak == nudge_at else None


def _check_thresholds(name: str, nudge_at: object, halt_at: object, *, first: int) -> None:
    if not (isinstance(nudge_at, int) and isinstance(halt_at, int) and first <= nudge_at < halt_at):
        given = f"{name}(nudge_at={nudge_at!r}, halt_at={halt_at!r})"
        message = f"{given}: nudge_at has to be smaller than halt_at, both whole numbers, and at least {first}"
        raise ConfigError(message)


GUARDRAILS: tuple[Callable[[], Guardrail], ...] = (repeated_calls(), mistakes())
"""The guardrails of a run that sets none."""
