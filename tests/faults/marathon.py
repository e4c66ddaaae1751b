"""One long conversation, driven by a process that may be killed at any time. Above: its test. Below: Perdure.

Everything that shapes what a model sees is in it: compaction, short forms and previews of results, skills, steering,
tasks, subagents. The model is one with a small window that counts for itself: it refuses what does not fit, and notes
every request outside of the process, with the place in the log at which it came.

    python -m tests.faults.marathon ORDER
"""

import asyncio
import hashlib
import os
import random
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from perdure import (
    Agent,
    ContextOverflow,
    Extension,
    Limits,
    Message,
    Session,
    ToolCall,
    ToolContext,
    ToolOutput,
    Usage,
    tool,
)
from perdure._core.values.message import PASSING_ORIGINS
from perdure.context import Compaction, Skill, Skills, large_results, summarize_old_results
from perdure.engines import Run, fold_entries
from perdure.events import ModelEvent, ReplyFinished, TextDelta
from perdure.models import ModelInfo, Request
from perdure.stores import open_store
from perdure.tools import task_tools
from tests.seeds import SEED
from tests.transcript import assert_valid

WINDOW = 8_000
"""Tokens that the model can read."""
CHARACTERS = 4
"""Of a token, as this model counts."""
SESSION = "marathon"
_TASK = re.compile(r"task (\d+)")
_ASKING = {"", "skill", "compaction"}
"""Where a task may be read: in what was asked, and in a summary, when there was no room for anything else."""
STEPS = ("work", "read_page", "dump", "research", "update_tasks", "skill", "publish")


class Order(msgspec.Struct, frozen=True):
    """What such a process is to do."""

    database: str
    ledger: str
    """Where tools note their effects."""
    requests: str
    """Where the model notes what it is asked."""
    tasks: int
    """How many prompts the conversation has."""


class Note(msgspec.Struct, frozen=True):
    """A request, as it reached the model."""

    kind: str
    """`root`, `child`, or `summary` when it is not a part of the conversation."""
    path: str
    seq: int
    """The last entry of the log when it came."""
    tokens: int
    segments: list[str]
    """Hashes of the instructions, the tools, and each message that is kept."""
    tools: list[str]
    """What is offered."""
    problem: str = ""
    """What is wrong with it."""


def note(path: str, line: bytes) -> None:
    """Add a line to a file outside, at once and whole."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line + b"\n")
    finally:
        os.close(descriptor)


# -- the model ---------------------------------------------------------------------------------------------------------


class Runner:
    """A model that knows from the conversation alone how far it is."""

    def __init__(self, order: Order, kind: str) -> None:
        self.info = ModelInfo("runner", "marathon", context_tokens=WINDOW, max_output_tokens=500)
        self._order, self._kind = order, kind
        self.run: Run | None = None
        self.session: Session | None = None

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        tokens = size_of(request)
        is_summary = not request.instructions.startswith(("You run", "You look"))
        self._note(request, "summary" if is_summary else self._kind, tokens)
        if tokens > WINDOW:
            raise ContextOverflow(f"{tokens} tokens are more than {WINDOW}", window_tokens=WINDOW)
        usage = Usage(tokens, 20)
        if is_summary:
            yield TextDelta("## Goal\nRun on.\n## Progress\nAll tasks so far are done.")
            yield ReplyFinished(usage=usage)
            return
        answer = next_step(request.messages, self._kind)
        if isinstance(answer, str):
            yield TextDelta(answer)
            yield ReplyFinished(usage=usage)
        else:
            yield ReplyFinished(message=Message("assistant", tuple(answer)), usage=usage)

    def _note(self, request: Request, kind: str, tokens: int) -> None:
        problem = ""
        try:
            assert_valid(request.messages)
        except AssertionError as error:
            problem = str(error)
        kept = [each for each in request.messages if each.origin not in PASSING_ORIGINS]
        parts = [request.instructions, request.tools, *kept]
        run = self.run
        told = Note(
            kind,
            "" if run is None else run.path,
            0 if run is None else run.log.head,
            tokens,
            [hashlib.sha256(msgspec.json.encode(each)).hexdigest()[:12] for each in parts],
            [each.name for each in request.tools],
            problem,
        )
        note(self._order.requests, msgspec.json.encode(told))


def size_of(request: Request) -> int:
    """How many tokens this model counts."""
    parts = (request.instructions, request.tools, [each.parts for each in request.messages])
    return len(msgspec.json.encode(parts)) // CHARACTERS


def next_step(messages: Sequence[Message], kind: str) -> str | list[ToolCall]:
    """What comes after the last thing that was done, as the messages tell it."""
    for message in reversed(messages):
        if message.tool_calls:
            arguments: Mapping[str, Any] = msgspec.json.decode(message.tool_calls[-1].arguments)
            place = arguments.get("place") or arguments.get("arguments") or arguments["tasks"][0]["content"]
            number, step = map(int, str(place).split("."))
            return _planned(number, step + 1, kind)
        if message.role == "user" and message.origin in _ASKING and (found := _TASK.findall(message.text)):
            return _planned(int(found[-1]), 0, kind)
        if message.role == "assistant":
            return f"{message.text} Noted."
    return "I am lost."


def _planned(number: int, step: int, kind: str) -> str | list[ToolCall]:
    chance = random.Random(f"{SEED} {kind} {number}")
    names = ["work"] if kind == "child" else [chance.choice(STEPS) for _ in range(chance.randint(3, 6))]
    if number % 12 == 5 and kind == "root":
        names.insert(1, "compact_conversation")
    if step >= len(names):
        return f"Task {number} is done."
    calls = [_call(names[step], number, step)]
    if names[step] == "read_page":  # two at once
        calls = [_call("read_page", number, step), _call("work", number, step)]
    return calls


def _call(name: str, number: int, step: int) -> ToolCall:
    place = f"{number}.{step}"
    match name:
        case "update_tasks":
            tasks = [{"content": place, "active_form": "Going on", "status": "in_progress"}]
            arguments: dict[str, Any] = {"tasks": tasks}
        case "skill":
            arguments = {"name": "reporting", "arguments": place}
        case "research":
            arguments = {"task": f"task {number}", "place": place}
        case "compact_conversation":
            arguments = {"focus": place, "place": place}
        case _:
            arguments = {"place": place}
    return ToolCall("", name, msgspec.json.encode(arguments).decode())


# -- what it can do ----------------------------------------------------------------------------------------------------


def agent_of(order: Order) -> tuple[Agent[Any], Runner]:
    """The agent, and its model."""

    @tool(summary=lambda _: "worked")
    async def work(place: str, context: ToolContext[Any]) -> str:
        """Does something that must not be done twice."""
        note(order.ledger, f"{context.session_id} {context.run_id} {context.call_id}".encode())
        if root.session is not None and int(place.partition(".")[0]) % 4 == 1:  # somebody speaks up in the middle
            await root.session.steer(f"A remark at {place}.", post_id=f"remark-{place}")
        return f"worked at {place}"

    @tool(effect="read")
    async def read_page(place: str) -> ToolOutput:
        """Reads a page."""
        return ToolOutput(f"page {place} " + "lorem ipsum " * 250, summary=f"read {place}")

    @tool(effect="read")
    async def dump(place: str) -> str:
        """Prints far too much."""
        return f"dump {place}\n" + "all work and no play\n" * 3_000

    @tool(effect="idempotent")
    async def publish(place: str) -> str:
        """Publishes a report."""
        return f"published {place}"

    @tool(effect="idempotent")
    async def compact_conversation(place: str, focus: str, context: ToolContext[Any]) -> str:
        """Sums up."""
        return f"{place} {await context.compact()} {focus}"

    large = large_results(2_000)

    @tool(effect="idempotent")
    async def sign(place: str) -> str:
        """Signs a report."""
        return f"signed {place}"

    reporting = Skill(name="reporting", description="Writes reports.", body="Be exact. " * 30, tools=(publish,))
    signing = Skill(name="signing", description="For people.", body="Sign below.", tools=(sign,), hidden=True)
    skills = Skills([reporting, signing])
    root, child = Runner(order, "root"), Runner(order, "child")
    limits = Limits(max_turns=None)
    researcher = Agent(
        child,
        name="researcher",
        instructions="You look things up.",
        tools=[work],
        limits=limits,
        extensions=[Extension(name="where", between_turns=[lambda run: _attached(child, run)])],
    )
    research = researcher.as_tool(name="research", input=Research)
    agent = Agent(
        root,
        instructions="You run a long way.",
        tools=[
            work,
            read_page,
            dump,
            compact_conversation,
            *task_tools(),
            research,
        ],
        skills=skills,
        guardrails=(),
        limits=limits,
        compaction=Compaction(keep_recent_tokens=1_500),
        extensions=[
            Extension(name="large", tools=large.tools, wrap_tool=large.wrap_tool),
            Extension(
                name="short", between_turns=[summarize_old_results(min_tokens=800), lambda run: _attached(root, run)]
            ),
            Extension(name="time", reminders=[lambda run: f"It is turn {run.state.turns}."]),
        ],
        store=open_store(f"sqlite:{order.database}"),
    )
    return agent, root


class Research(msgspec.Struct):
    """What is looked up."""

    task: str
    place: str


async def _attached(model: Runner, run: Run) -> None:
    """Let the model see where in the log it is asked."""
    model.run = run


# -- the process -------------------------------------------------------------------------------------------------------


async def drive(order: Order) -> None:
    """Take the conversation from wherever it is to its end."""
    agent, model = agent_of(order)
    async with agent:
        session = model.session = agent.session(SESSION)
        while (number := await _next(session)) < order.tasks:
            if number % 5 == 3:
                await session.steer(f"A hint for {number}.", post_id=f"hint-{number}")
            slash = "/signing " if number == 7 else "/reporting " if number % 9 == 4 else ""
            outcome = await session.run(f"{slash}task {number} please", input_id=f"task-{number}")
            assert outcome.status == "done", outcome


async def _next(session: Session) -> int:
    """Which task comes next, once what was cut off is done."""
    state = fold_entries(await session.store.read(SESSION))
    if state.is_interrupted:
        outcome = await session.resume()
        assert outcome.status in {"done", "parked"}, outcome  # killed at one place again and again, it is given up
        state = fold_entries(await session.store.read(SESSION))
    return len(state.runs_by_input_id)


if __name__ == "__main__":
    asyncio.run(drive(msgspec.json.decode(sys.argv[1], type=Order)))
