"""Agents that work in the background, each in a session of its own. Above: `delegation.py`. Below: sessions.

A task goes on when the turn and the run that gave it are over, as long as the process lives. Its end is posted to the
inbox of the session that gave it, so the model is told at the next safe point, once. What a crash has cut off is taken
up when that session runs again: a session knows its tasks from its log.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from perdure.core.error import ConfigError, PerdureError, SessionBusy
from perdure.core.event import Entry, Event, InboxResolved, SessionConfigured, SubagentFinished
from perdure.core.fold import State, fold_events
from perdure.core.gate import held_below
from perdure.core.inbox import resolution
from perdure.core.ledger import budgeted
from perdure.core.message import NO_USAGE
from perdure.core.outcome import Outcome
from perdure.core.plain import words_of
from perdure.core.redact import REDACTED
from perdure.core.run import Run, Upkeep
from perdure.core.stop import Limits
from perdure.core.store import Post, Store, events_of, wait_through
from perdure.driver import leave_the_run, tell, within_a_run
from perdure.outcome import retold
from perdure.session import Session
from perdure.speaking import speaking

from .attached import DEPTH, SHOWN_CHARACTERS, depth_of
from .job import Job, is_pending, jobs_of
from .report import report

if TYPE_CHECKING:
    from perdure.agent import Agent

logger = logging.getLogger("perdure")

GO_ON = "Your work was interrupted. Go on where you were, and answer the task that you were given."
"""What an agent is told whose process ended in good order before its task was done."""
_NEXT_TO_NOTHING_USD = 1e-9
BUSY_SECONDS = 1.0
"""How often somebody looks for whom another process works."""


Key: TypeAlias = tuple[int, int, str]
"""A task in this process: its event loop, its store and its session."""


class Crew:
    """The agents that work in the background for the sessions of one process."""

    def __init__(self, agents: "Mapping[str, Agent[Any]]", most_at_once: int) -> None:
        self.agents = agents
        self._most_at_once = most_at_once
        self._floors: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        """Room for so many at once, on each event loop."""
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        """What goes on."""
        self._above: dict[Key, Run] = {}
        """The last run of whoever gave each of them: its watchers are told what becomes of it."""

    # -- for the tools -------------------------------------------------------------------------------------------------

    def begin(self, run: Run, job: Job) -> "asyncio.Task[None]":
        """Begin with a task, or go on with it; nothing, when that is being done."""
        key = _key(run.log.store, job)
        self._above[key] = run
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.ensure_future(self._work(run, job))
            task.add_done_callback(lambda _: self._forget(key))
        return task

    def _forget(self, key: Key) -> None:
        del self._tasks[key], self._above[key]

    async def wait(self, run: Run, jobs: Sequence[Job], seconds: float) -> None:
        """Until all of these are done, but no longer than this."""
        going: set[asyncio.Future[None]] = {self.begin(run, job) for job in jobs if is_pending(run, job)}
        timer = asyncio.ensure_future(run.clock.sleep(seconds))
        try:
            while going and not timer.done():
                await asyncio.wait((*going, timer), return_when=asyncio.FIRST_COMPLETED)
                going = {task for task in going if not task.done()}
        finally:
            timer.cancel()
            await wait_through((timer,))

    async def cancel(self, run: Run, job: Job) -> None:
        """Stop a task, wherever it goes on."""
        task = self._tasks.get(_key(run.log.store, job))
        if task is not None:
            task.cancel()
            await wait_through((task,))
            await self._session(run, job).cancel()  # if another process works on it, that one hears of it

    async def status(self, run: Run, job: Job) -> tuple[str, str]:
        """How a task stands, in a word, and what its agent has said."""
        return self._standing(run, job, await _state(run, job))

    def _standing(self, run: Run, job: Job, state: State) -> tuple[str, str]:
        going = _key(run.log.store, job) in self._tasks
        past = [each for each in state.inputs.values() if each.ended is not None]
        if state.interrupted or not past:
            if not is_pending(run, job):
                return "cancelled", ""
            return ("waiting" if state.waiting else "running" if going else "interrupted"), ""
        last = past[-1]
        assert last.ended is not None  # noqa: S101 - as was just seen
        outcome = retold(job.session_id, state.messages, last, last.ended)
        return outcome.status, str(report(job.agent, outcome).content)

    async def take(self, run: Run, ends: Mapping[Job, str], *beside: Event) -> None:
        """The model is being told how tasks have ended: it is not told again by the inbox."""
        pending = {job: words for job, words in ends.items() if is_pending(run, job)}
        for job in pending:
            run.mailbox.forget(job.post_id)
        resolved = [InboxResolved(job.item_id, words, run.clock.now()) for job, words in pending.items()]
        if resolved:
            await run.emit(*map(run.stamped, (*resolved, *beside)), names=[job.post_id for job in pending])

    # -- for the extension ---------------------------------------------------------------------------------------------

    async def tend(self, run: Run) -> None:
        """Before each request: take up what a crash has cut off, and say which tasks are over."""
        if run.path or run.state.reply is not None:
            return
        self.take_up(run)
        for job in jobs_of(run.state):
            if not is_pending(run, job) and job.call_id in run.state.subagents:
                await run.emit(run.stamped(self._finished(run, job, await _state(run, job))))

    def take_up(self, run: Run) -> None:
        """Begin with every task that is pending, or go on with it; from here on this run hears of them."""
        for job in self._pending(run.state):
            self.begin(run, job)

    def has_work(self, state: State, posts: Sequence[Post], store: Store) -> bool:
        """Whether a session has tasks whose end is not posted, and that nobody here works on."""
        posted = {post.id for post in posts}
        left = [job for job in self._pending(state) if job.post_id not in posted]
        return any(_key(store, job) not in self._tasks for job in left)

    def _pending(self, state: State) -> list[Job]:
        return [job for job in jobs_of(state) if job.item_id in state.inbox and job.agent in self.agents]

    def _finished(self, run: Run, job: Job, state: State) -> SubagentFinished:
        """The end of a task, in short, and what it took."""
        status, words = self._standing(run, job, state)
        ends = [past.ended for past in state.inputs.values() if past.ended is not None]
        usage, costs = sum([each.usage for each in ends], NO_USAGE), [each.cost_usd for each in ends]
        cost_usd = None if None in costs else sum([each or 0.0 for each in costs])
        return SubagentFinished(job.call_id, job.agent, status, words[:SHOWN_CHARACTERS], usage, cost_usd)

    @asynccontextmanager
    async def lifespan(self, _agent: "Agent[Any]") -> AsyncGenerator[None]:
        """In `async with agent`, nothing goes on when the block is left. Without it, tasks outlive the runs."""
        for_one_run = within_a_run()
        try:
            yield
        finally:
            if not for_one_run:
                here = asyncio.get_running_loop()
                going = [task for task in self._tasks.values() if task.get_loop() is here]
                for task in going:
                    task.cancel()
                await wait_through(going)

    # -- one task ------------------------------------------------------------------------------------------------------

    async def _work(self, run: Run, job: Job) -> None:
        """Do a task, and tell its end to the session that gave it."""
        leave_the_run()
        try:
            outcome = await self._outcome(run, job)
            words = str(report(job.agent, outcome).content)
        except Exception as failure:  # whoever gave the task has to be told
            error = run.secrecy.error(failure)
            logger.warning("agent %s of session %s failed", job.handle, run.session_id, exc_info=error)
            words = f"{job.agent} failed ({words_of(error)})."
        post = resolution(job.item_id, words, run.clock.now())
        try:
            if await run.log.store.post(run.session_id, post):
                tell((id(run.log.store), run.session_id), post)
        except PerdureError as error:  # it will be told when that session runs again
            logger.warning("the end of agent %s cannot be posted: %s", job.handle, error)

    async def _outcome(self, run: Run, job: Job) -> Outcome[Any]:
        session = self._session(run, job)
        while True:
            try:
                async with self._floor():
                    outcome = await self._run(session, run, job)
            except SessionBusy:  # another process works on it
                await run.clock.sleep(BUSY_SECONDS)
                continue
            if outcome.status != "waiting":
                return outcome
            async for outcome in session.attend():
                if outcome.status != "waiting":
                    return outcome

    async def _run(self, session: "Session[Any]", run: Run, job: Job) -> Outcome[Any]:
        """Begin with the task, go on with it, or hear its end again."""
        state = await _state(run, job)
        if not state.configured:
            note = SessionConfigured({DEPTH: depth_of(run) + 1, "given_by": run.session_id})
            await session._note(note, begin=True)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - about itself
        name, *later = [*state.inputs] or [job.handle]
        if job.task == REDACTED and not state.inputs:
            raise ConfigError("the task was taken out of the log on request before it was begun")
        last = later[-1] if later else name
        past = state.inputs.get(last)
        if past is not None and past.ended is not None and past.ended.status == "cancelled":
            return await session.run(GO_ON, input_id=f"{name}.{len(later) + 1}")
        return await session.run(job.task, input_id=last)

    def _session(self, run: Run, job: Job) -> "Session[Any]":
        """The session of a task: its agent has what it was not given itself from whoever gave the task."""
        agent = self.agents[job.agent]
        model = agent.model
        for ledger in run.ledgers:
            model = model if ledger is agent.ledger else budgeted(model, ledger)
        inherited = agent.replace(
            model=model,
            permission=held_below(agent.permission, run.gate, run.session_id),
            deps=run.deps if agent.deps is None else agent.deps,
            interactive=agent.interactive and run.interactive,
            limits=_within(run, agent.limits),
            watchers=[*agent.watchers, self._telling(run, job)],
        )
        return Session(inherited, job.session_id, run.log.store, secrecy=run.secrecy)

    def _telling(self, run: Run, job: Job) -> Any:
        """Shows what happens in the session of a task to whoever watches the session that gave it."""
        key = _key(run.log.store, job)

        async def show_above(entry: Entry) -> None:
            above, event = self._above.get(key, run), entry.event
            path = f"{job.handle}/{event.path}" if event.path else job.handle
            above.show(msgspec.structs.replace(event, path=path, run_id=f"{above.run_id}/{job.handle}"))

        return show_above

    def _floor(self) -> asyncio.Semaphore:
        return self._floors.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._most_at_once))


def _within(run: Run, limits: Limits) -> Limits:
    """The limits of an agent, and no more tokens and money than are left to the run that gives it a task."""
    tokens, cost_usd = limits.token_budget, limits.max_cost_usd
    if run.limits.token_budget is not None:
        left = max(1, run.limits.token_budget - run.state.usage.total_tokens)
        tokens = left if tokens is None else min(tokens, left)
    if run.limits.max_cost_usd is not None:
        left_usd = max(_NEXT_TO_NOTHING_USD, run.limits.max_cost_usd - (run.cost_usd or 0.0))
        cost_usd = left_usd if cost_usd is None else min(cost_usd, left_usd)
    return msgspec.structs.replace(limits, token_budget=tokens, max_cost_usd=cost_usd)


def has_work(agent: "Agent[Any]", state: State, posts: Sequence[Post], store: Store) -> bool:
    """Whether a session has tasks that are not done, and that nobody here works on: a crash may have cut them off."""
    upkeep = [each for extension in speaking(agent, state).extensions for each in extension.upkeep]
    return any(crew.has_work(state, posts, store) for crew in _crews_among(upkeep))


def take_up(run: Run) -> None:
    """Go on with them. A task that another process works on is left to it, as long as it does."""
    for crew in _crews_among(run.upkeep):
        crew.take_up(run)


def _crews_among(upkeep: Sequence[Upkeep]) -> list[Crew]:
    """The crews that tend a run: their upkeep is their own method."""
    owners = [getattr(each, "__self__", None) for each in upkeep]
    return [each for each in owners if isinstance(each, Crew)]


def _key(store: Store, job: Job) -> Key:
    return id(asyncio.get_running_loop()), id(store), job.session_id


async def _state(run: Run, job: Job) -> State:
    events, _ = await events_of(run.log.store, job.session_id)
    return fold_events(events)
