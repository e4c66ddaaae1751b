"""A run that carries out a call of another run, in the same log under a path. Above: tools. Below: `build.py`, `core`.

The call has no intent: the child's own events say how far it is. So a call that was cut off is simply made again, finds
its child in the log, and goes on with it; one whose child was done tells its end again. The child shares its parent's
log, watchers, answers, gate and budgets; what it says and does is its own.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perdure.build import Place, build
from perdure.core.cache import PrefixWatch
from perdure.core.effect import Suspended
from perdure.core.error import ConfigError, ToolError
from perdure.core.event import Event, MessageAdded, RunResumed, RunStarted, SubagentFinished, SubagentStarted
from perdure.core.fold import Past, State
from perdure.core.loop import execute
from perdure.core.message import user
from perdure.core.outcome import Outcome
from perdure.core.plain import clean, words_of
from perdure.core.repair import repairs
from perdure.core.run import Engine, Run
from perdure.core.store import wait_through
from perdure.core.tool import ToolOutput
from perdure.discretion import introduce
from perdure.extension import alive
from perdure.outcome import retold
from perdure.output import Output, held
from perdure.override import Options

from .report import report

if TYPE_CHECKING:
    from perdure.agent import Agent

MAX_DEPTH = 5
"""How many agents may stand between one and the session, itself included, unless a tool says otherwise."""
SHOWN_CHARACTERS = 500
"""How much of an answer is told beside the result, for screens."""
DEPTH = "depth"
"""Where a session of its own keeps how deep its agent stands already."""


class Errand(Struct, frozen=True, eq=False):
    """What an agent is given to do."""

    name: str
    """What it is called, by whoever calls it."""
    agent: "Agent[Any]"
    call_id: str
    """The call that it carries out."""
    prompt: str
    """What it is told."""
    path: str
    """Where its events are."""
    output: Output[Any] | None = None
    """What it has to make a value of."""


def place_of(parent: Run, call_id: str, segment: str) -> str:
    """Where the child of a call is: where it was begun, or at this segment below its parent."""
    begun = parent.state.errands.get(call_id)
    return begun or (f"{parent.path}/{segment}" if parent.path else segment)


def check_depth(parent: Run, name: str, most: int) -> None:
    """Tell a model that too many agents stand above this one."""
    deep = depth_of(parent) + 1
    if deep > most:
        raise ToolError(
            f"{name!r} cannot be given a task from here: it would be agent number {deep} in a row, and {most} are the "
            "most. Do the work yourself, or say what is missing."
        )


def depth_of(run: Run) -> int:
    """How many agents stand between the session that somebody talks to and what this run does."""
    top = run.state
    while top.parent is not None:
        top = top.parent
    return int(top.configured.get(DEPTH, 0)) + (run.path.count("/") + 1 if run.path else 0)


async def carry_out(errand: Errand, parent: Run) -> ToolOutput:
    """Do the errand, or go on with it, and say what came of it. Raises `Suspended` when somebody has to answer."""
    async with _turn(parent, errand.path):
        state = parent.state.child(errand.path)
        past = state.inputs.get(errand.call_id)
        if past is not None and past.ended is not None:
            outcome = retold(parent.session_id, state.messages, past, past.ended)
        else:
            outcome = await _settled(errand, parent, state, past)
        said = report(errand.name, outcome, errand.output, errand.path)
        if errand.call_id in parent.state.subagents:
            await parent.emit(_finished(errand, parent, outcome.status, str(said.content)))
    return said


@asynccontextmanager
async def _turn(parent: Run, path: str) -> AsyncGenerator[None]:
    """One errand at a time for an agent that remembers the one before."""
    lock: asyncio.Lock = parent.scratch.setdefault(f"turn of {path}", asyncio.Lock())
    async with lock:
        yield


async def _settled(errand: Errand, parent: Run, state: State, past: Past | None) -> Outcome[Any]:
    """Drive the child to its end. Whatever goes wrong on the way, its run is closed, and the errand is over."""
    if past is None and state.waiting:
        raise Suspended  # an earlier errand of this agent waits for an answer: this one comes after it
    try:
        return await _driven(errand, parent, state, past)
    except (Exception, asyncio.CancelledError) as error:
        stopped = isinstance(error, asyncio.CancelledError)
        ending = ("cancelled", "cancelled", "") if stopped else ("failed", type(error).__name__, words_of(error))
        left = repairs(state, ending)
        if errand.call_id in parent.state.subagents:
            left.append(_finished(errand, parent, ending[0], ending[2]))
        if left:
            await parent.emit(*left, sync=True)
        raise


async def _driven(errand: Errand, parent: Run, state: State, past: Past | None) -> Outcome[Any]:
    await introduce(errand.agent, state, parent.secrecy)
    async with alive(errand.agent):
        child = _built(errand, parent, state)
        await parent.emit(*_opening(errand, parent, child, past), sync=True)
        parent.children.append(child)
        try:
            outcome = await _to_its_end(child, _engine(errand))
        finally:
            parent.children.remove(child)
    if outcome.status == "waiting":
        raise Suspended
    return outcome


def _built(errand: Errand, parent: Run, state: State) -> Run:
    """The run of the child, under its parent."""
    agent = errand.agent
    place = Place(
        session_id=parent.session_id,
        run_id=f"{parent.run_id}/{errand.call_id}",
        log=parent.log,
        state=state,
        fanout=parent.fanout,
        mailbox=parent.mailbox.branch(),
        prefixes=PrefixWatch(),
        may_wait=parent.may_wait,
        parent=parent,
        secrecy=parent.secrecy,
    )
    options: Options = {} if errand.output is None else {"output": errand.output}
    if agent.deps is None:
        options["deps"] = parent.deps
    child = build(agent, place, options)
    child.patience_seconds = max(child.patience_seconds, parent.patience_seconds)
    _check_price(child)
    return child


def _check_price(child: Run) -> None:
    """A limit in money holds for children too, so what they cost has to be known."""
    above = child.parent
    while above is not None and child.info.price is None:
        if above.limits.max_cost_usd is not None:
            name = child.info.name
            raise ConfigError(f"max_cost_usd needs models whose price is known, and {name!r} has none")
        above = above.parent


def _opening(errand: Errand, parent: Run, child: Run, past: Past | None) -> list[Event]:
    """How the child's run begins in the log, or goes on."""
    if past is not None:
        return [child.stamped(RunResumed())]
    prompt = clean(errand.prompt)
    given = parent.stamped(SubagentStarted(errand.call_id, errand.name, prompt, errand.path))
    return [
        *repairs(child.state),
        *([] if errand.call_id in parent.state.subagents else [given]),
        child.stamped(RunStarted(errand.agent.name, input_id=errand.call_id)),
        child.stamped(MessageAdded(user(prompt))),
    ]


def _engine(errand: Errand) -> Engine:
    engine = errand.agent.engine
    return engine if errand.output is None else held(engine, errand.output)


async def _to_its_end(child: Run, engine: Engine) -> Outcome[Any]:
    """Drive the child in a task of its own: its timeout ends it alone, and a cancel of its parent ends it first."""
    task = asyncio.ensure_future(execute(child, engine))
    cancelled = False
    while not task.done() and not child.left_behind.done():
        try:
            await asyncio.wait((task, child.left_behind), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            cancelled = True
            child.interrupt("cancelled")
    if not task.done():
        task.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody else looks at it
        raise ToolError("it was told to end, and did not; it may still be running")
    if cancelled:
        await wait_through((task,))
        raise asyncio.CancelledError
    return task.result()


def _finished(errand: Errand, parent: Run, status: str, words: str) -> Event:
    """The end of the errand, in short: the whole of it is in the result."""
    return parent.stamped(SubagentFinished(errand.call_id, errand.name, status, words[:SHOWN_CHARACTERS]))
