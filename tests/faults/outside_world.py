"""The agent of the outside search: its model, its tools and those who work for it. Above: `outside_people.py`.

Every effect is noted outside before and after it happens, with its key and the fence of whoever makes it; every request
is noted as the bytes that a provider would get, checked by that provider's rules.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from perdure import Agent, EffectNotStarted, PerdureError, Permissions, StopReason, ToolContext, Usage, tool
from perdure._core.values.clock import new_id
from perdure._models.wires.anthropic import WIRE as ANTHROPIC
from perdure._models.wires.openai_chat import WIRE as OPENAI
from perdure.events import ModelEvent, ReplyFinished, TextDelta, ToolCallDelta
from perdure.models import EncodingMemo, ModelInfo, Profile, Request, Wire
from perdure.people import Choice
from perdure.permissions import later
from perdure.stores import Store
from perdure.tools import delegation
from tests.faults.outside_ledger import Ledger
from tests.faults.outside_plan import ANSWER, LAST_ANSWER, LAST_PROMPT, VALUE, find_turn, plan
from tests.transcript import assert_valid

DURATIONS = (0.0, 0.0, 0.001, 0.001, 0.004)
"""How long effects take; some of the same, so that calls made at once also end at once."""
BUSY_SECONDS = 0.002
"""How long an effect keeps its process from doing anything else."""
BERTHS = ("north", "south", "west")
PROVIDERS: Sequence[tuple[Wire, Profile]] = (
    (OPENAI, Profile(provider="openai", model="gpt-4.1", dialect="openai")),
    (ANTHROPIC, Profile(provider="anthropic", model="claude-sonnet-4-5")),
)


class OutsideModel:
    """Says what the plan says, in pieces, and notes what it was asked."""

    def __init__(self, ledger: Ledger, seed: str, who: str, *, is_chief: bool) -> None:
        self.info = ModelInfo("outside", "outside", output="native")
        self._ledger = ledger
        self._seed = seed
        self._who = who
        self._is_chief = is_chief

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Stream a reply."""
        session, number = request.session_id, new_id()
        self._ledger.note("request", session, number, _checked_body(request))
        prompt, turn = find_turn(request.messages)
        turns = plan(f"{self._seed} {session}", prompt, is_chief=self._is_chief)
        await asyncio.sleep(random.choice(DURATIONS))
        answer = LAST_ANSWER if prompt == LAST_PROMPT else ANSWER
        for piece in _pieces("Let me see." if turn < len(turns) else answer if request.output is None else VALUE):
            yield TextDelta(piece)
            await asyncio.sleep(0)
        for place, wish in enumerate(turns[turn] if turn < len(turns) else ()):
            yield ToolCallDelta(f"c{new_id()[-20:]}", wish.tool, _arguments(wish.tool, wish.what), index=place)
            await asyncio.sleep(0)
        self._ledger.note("replied", session, number)
        stop = StopReason.TOOL_USE if turn < len(turns) else StopReason.STOP
        yield ReplyFinished(stop, Usage(10, 5), "outside", "outside")


def _pieces(text: str) -> tuple[str, str]:
    return text[:3], text[3:]


def _arguments(name: str, what: str) -> str:
    if name == "delegate":
        return msgspec.json.encode({"agent": "runner", "task": what, "background": True}).decode()
    return msgspec.json.encode({"task" if name == "scout" else "what": what}).decode()


def _checked_body(request: Request) -> str:
    """Return the bytes for one provider, or what is wrong with the request for any of them."""
    try:
        assert_valid(request.messages)
        bodies = [wire.encode(request, profile, EncodingMemo()).body for wire, profile in PROVIDERS]
        for (wire, profile), body in zip(PROVIDERS, bodies, strict=True):
            if broken := wire.lint(msgspec.json.decode(body), profile):
                return f"INVALID for {wire.name}: {broken}"
    except (AssertionError, PerdureError) as error:
        return f"INVALID {type(error).__name__}: {error}"
    return bodies[0].decode()


def build_agent(ledger: Ledger, seed: str, store: Store, **options: Any) -> Agent[Any]:
    """Return the same agent in every process."""
    tools = build_tools(ledger)
    few = [tools[name] for name in ("look", "put", "mail", "settle", "book", "order")]
    scout = Agent(OutsideModel(ledger, seed, "scout", is_chief=False), name="scout", tools=few)
    runner = Agent(OutsideModel(ledger, seed, "runner", is_chief=False), name="runner", tools=few)
    return Agent(
        OutsideModel(ledger, seed, "chief", is_chief=True),
        name="chief",
        tools=[*tools.values(), scout.as_tool()],
        permission=Permissions(handler=later),
        extensions=[delegation([runner])],
        store=store,
        guardrails=(),
        **options,
    )


class Effects:
    """What tools do to the world: it is noted before and after."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def begin(self, context: ToolContext[Any], what: str) -> None:
        """Begin an effect."""
        self._note("begin", context, what)
        time.sleep(BUSY_SECONDS)

    def end(self, context: ToolContext[Any], what: str) -> str:
        """End it; nothing can come between this and the result."""
        self._note("end", context, what)
        return f"did {what}"

    async def do(self, context: ToolContext[Any], what: str) -> str:
        """Do both, with some time in between."""
        self.begin(context, what)
        await asyncio.sleep(random.choice(DURATIONS))
        return self.end(context, what)

    def _note(self, kind: str, context: ToolContext[Any], what: str) -> None:
        fence = context.run.log.lease.fence
        self._ledger.note(kind, context.session_id, context.idempotency_key, f"{context.name} {what}", fence)


def build_tools(ledger: Ledger) -> dict[str, Any]:
    """Return one tool of each kind, by name."""
    effects = Effects(ledger)
    made = (*_repeatable_tools(effects), *_tools_for_once(effects), *_asking_tools(effects))
    return {each.name: each for each in made}


def _repeatable_tools(effects: Effects) -> Sequence[Any]:
    """What may be done again."""

    @tool(effect="read")
    async def look(what: str, context: ToolContext[Any]) -> str:
        """Looks."""
        return await effects.do(context, what)

    @tool(effect="idempotent")
    async def put(what: str, context: ToolContext[Any]) -> str:
        """Puts something somewhere."""
        return await effects.do(context, what)

    @tool(effect="idempotent", retries=1)
    async def fetch(what: str, context: ToolContext[Any]) -> str:
        """Fetches something, at the second attempt."""
        if not context.state.setdefault(context.call_id, False):
            context.state[context.call_id] = True
            raise EffectNotStarted("not yet")
        return await effects.do(context, what)

    return look, put, fetch


def _tools_for_once(effects: Effects) -> Sequence[Any]:
    """What may not be done again; one of them on a thread, and one whose fruit comes later."""

    @tool
    async def mail(what: str, context: ToolContext[Any]) -> str:
        """Sends a letter."""
        return await effects.do(context, what)

    @tool(parallel=False)
    def sign(what: str, context: ToolContext[Any]) -> str:
        """Signs, on a thread."""
        effects.begin(context, what)
        return effects.end(context, what)

    @tool
    async def order(what: str, context: ToolContext[Any]) -> str:
        """Orders something that comes later."""
        effects.begin(context, what)
        await context.add_to_inbox("order", what, wake=random.random() < 0.5)
        return effects.end(context, what)

    return mail, sign, order


def _asking_tools(effects: Effects) -> Sequence[Any]:
    """What a person has a say in: before it is done, while it is done, or when nobody knows whether it was."""

    @tool(permission=True)
    async def pay(what: str, context: ToolContext[Any]) -> str:
        """Pays, if somebody allows it."""
        return await effects.do(context, what)

    @tool(asks_first=True)
    async def book(what: str, context: ToolContext[Any]) -> str:
        """Books a berth, after a question."""
        berth = await context.ask(Choice("Which berth?", BERTHS))
        await context.begin()
        return f"{await effects.do(context, what)} at {berth}"

    @tool(effect="ask")
    async def settle(what: str, context: ToolContext[Any]) -> str:
        """Does what a person has to settle after a crash."""
        return await effects.do(context, what)

    return pay, book, settle
