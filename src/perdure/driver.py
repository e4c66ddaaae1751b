"""Whoever drives a session: takes the lease, opens the log, drives one run after another. Above: `session.py`.
Below: `core`.

Opening folds the log; what a crash left behind is repaired, and the repair is appended. One run goes on at a time; a
second one waits for its turn. What a run is made of is put together in `build.py`.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec import Struct

from .build import Place, build
from .core import faults
from .core.cache import PrefixWatch
from .core.call import finished
from .core.effect import not_started, uncertain
from .core.error import SessionNotFound, StoreError, UsageError
from .core.event import Entry, Event, MessageAdded, PostTaken, RunResumed, RunStarted, SessionOpened, SkillLoaded
from .core.fanout import Fanout
from .core.fold import State
from .core.loop import ended, execute, react
from .core.mailbox import CANCEL, Mailbox
from .core.message import Message, Status, ToolCall
from .core.outcome import Outcome
from .core.repair import CRASHES, CUT_OFF, UNANSWERED, repairs, repairs_below
from .core.run import CancelMode, Engine, Forgotten, Run
from .core.secrecy import Secrecy
from .core.store import Lease, Log, Post, Store, events_of, insisted, wait_through
from .delivery import deliver_all, promote
from .discretion import introduce
from .extension import alive, watchers_of
from .outcome import retold
from .output import held
from .override import Options, recorded, restored
from .stream import coalesce, lagged, watcher_dropped
from .waking import CALL, is_resumable

if TYPE_CHECKING:
    from .agent import Agent

logger = logging.getLogger("perdure")

DRAIN_SECONDS = 1.0
"""How long the end of a run waits for watchers to catch up."""
POLL_SECONDS = 1.0
"""How often a run looks for what other processes have posted. What comes from this process is there at once."""
MOST_RECOVERIES = 3
"""A run that was taken up as often as this, and never got anywhere, is parked."""

NOTHING_NEW = "nothing_new"
"""Why a run that was to tell the model something did not even begin."""

_HASTE: Mapping[str | None, int] = {"after_turn": 1, "after_tools": 2, "now": 3}
"""How quickly a run is to stop. Whoever loses patience may ask for more, and never for less."""

_driving: ContextVar[frozenset[tuple[int, str]]] = ContextVar("perdure_driving", default=frozenset())
"""The sessions that the current task is a part of: a tool must not wait for its own session."""

_going: dict[tuple[int, str], "Driver"] = {}
"""The sessions of this process that have a run going on, so that posts reach it at once."""


class Order(Struct, frozen=True):
    """What a driver is asked to do."""

    kind: Literal["run", "resume", "call", "wake", "compact"]
    run_id: str = ""
    """Of a run that is to begin."""
    overrides: Options = {}
    messages: tuple[Message, ...] = ()
    """What is said first."""
    beside: tuple[Event, ...] = ()
    """What has happened to these messages before they were said."""
    answer: Message | None = None
    """What is answered in the place of the model, if something is."""
    tool: str = ""
    """What is called, when it is only a call."""
    input_id: str = ""
    take_over: bool = False
    """Whether to take the session from whoever drives it."""
    is_optional: bool = False
    """Whether it is no mistake to go on where there is nothing to go on with: somebody else may have been quicker."""


class Driver:
    """The runs of one session in this process."""

    def __init__(self, agent: "Agent[Any]", session_id: str, store: Store, secrecy: Secrecy | None = None) -> None:
        self.agent = agent
        self.session_id = session_id
        self.store = store
        self.may_wait = True
        """Whether its runs may end as `waiting`: somebody can find the session again."""
        self.run: Run | None = None
        """The run that goes on."""
        self.task: asyncio.Task[Any] | None = None
        """The task that has the session now; others wait for their turn."""
        self.order: Order | None = None
        """What it was asked to do: the session is being opened for it, or it goes on."""
        self._state = State()
        self._head = 0
        self._fence = 0
        """Of the last lease that we had."""
        self.became: dict[str, str] = {}
        """Which run was taken up in the place of the one that was asked for."""
        self._asked = ""
        """What the run was called by whoever asked for it; one that is taken up again keeps its own name."""
        self._prefixes = PrefixWatch()
        """Sees whether each request begins with the one before it."""
        self.secrecy = secrecy or Secrecy()
        """What is taken out of all that is stored and shown; a session that works for another one shares it."""
        self._unwanted: set[str] = set()
        """The runs that were cancelled while they waited."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turnstile: asyncio.Lock
        self.fanout: Fanout[Entry]

    @property
    def key(self) -> tuple[int, str]:
        """Names the session in this process."""
        return id(self.store), self.session_id

    # -- from outside --------------------------------------------------------------------------------------------------

    def settle_in(self) -> None:
        """Belong to the running event loop. A session outlives a loop: `run_sync`, or `asyncio.run` twice."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self.order is not None and self._loop is not None and self._loop.is_running():
                message = (
                    f"session {self.session_id!r} has a run on another event loop: "
                    "use agent.session(…) to get a Session for this one"
                )
                raise UsageError(message)
            self._loop = loop
            self._turnstile = asyncio.Lock()
            self.fanout = Fanout(coalesce=coalesce, lagged=lagged, on_dropped=self._report_dropped)

    async def aclose(self) -> None:
        """Let watchers finish."""
        if self._loop is asyncio.get_running_loop():
            await self.fanout.aclose(DRAIN_SECONDS)
            self._loop = None

    def stop(self, run_id: str, mode: CancelMode) -> bool:
        """Stop one run. When it still waits for its turn, it will be over as soon as it begins."""
        if self.run is not None and self.order is not None and run_id in {self._asked, self.order.run_id}:
            self.run.cancel(mode)
        else:
            self._unwanted.add(run_id)
        return True

    def deliver(self, post: Post) -> None:
        """Hand a post to the run that goes on, if one does."""
        if self.run is None:
            return
        if post.kind != CANCEL:
            self.run.mailbox.put(post)
        elif post.named("run_id") == self.run.run_id:
            mode = cast("CancelMode", post.named("mode"))
            if _HASTE.get(mode, 0) > _HASTE.get(self.run.cancelling, 0):  # else it is known already, or says nothing
                self.run.cancel(mode)

    # -- one run -------------------------------------------------------------------------------------------------------

    async def perform(self, order: Order) -> Outcome[Any]:
        """Open the session, store how the run begins, drive it to its end, and let go."""
        if self.key in _driving.get():
            message = f"a tool of session {self.session_id!r} cannot run its own session: it would wait for itself"
            raise UsageError(message)
        self.settle_in()
        async with self._turnstile:
            token = _driving.set(_driving.get() | {self.key})
            self.task = asyncio.current_task()
            self.order, self._asked = order, order.run_id
            try:
                return await self._hold(order)
            finally:
                _driving.reset(token)
                self.run = self.order = None
                self._unwanted.discard(order.run_id)

    async def _hold(self, order: Order) -> Outcome[Any]:
        """Drive the run while the session is ours."""
        lease = await self.store.acquire(self.session_id, take_over=order.take_over)
        if lease.fence != self._fence + 1:  # others have had it meanwhile, and may have taken words out of its log
            self._state, self._head = State(), 0
        self._fence = lease.fence
        try:
            async with alive(self.agent):
                return await self._watched(self._drive(order, lease))
        except BaseException:
            self._state, self._head = State(), 0  # it may differ from what is stored: that is read again
            raise
        finally:
            await insisted(lambda: self.store.release(lease))

    async def _watched(self, work: Coroutine[Any, Any, Outcome[Any]]) -> Outcome[Any]:
        """Show a run to the watchers of all who may speak in it, and let them catch up before it is over."""
        removers = [self.fanout.add(watcher) for watcher in watchers_of(self.agent)]
        try:
            return await work
        finally:
            await insisted(lambda: self.fanout.drain(DRAIN_SECONDS))
            for remove in removers:
                remove()

    async def _drive(self, order: Order, lease: Lease) -> Outcome[Any]:
        await self._catch_up()
        await introduce(self.agent, self._state, self.secrecy)
        past = self._state.inputs.get(order.input_id) if order.input_id else None
        if past is not None and past.ended is not None:
            return retold(self.session_id, self._state.messages, past, past.ended)
        if order.is_optional and not is_resumable(self._state):
            return Outcome(status="done", reason=NOTHING_NEW, session_id=self.session_id)
        posts = await self.store.posts(self.session_id)
        resuming = order.kind == "resume" or past is not None
        if resuming and self._interrupted_run().run_id != order.run_id:
            order = self._resumed(order)
            self.became = {self._asked: order.run_id}
        mailbox, late = self._sorted(posts, order.run_id, resuming=resuming)
        if order.kind == "wake" or (resuming and len(self._state.messages) == self._state.first):
            promote(mailbox)  # nothing has been said in this run
        self.order = order
        self.run = run = self._build(order, lease, mailbox)
        run.show(SessionOpened(self.session_id, self._head, run_id=run.run_id))
        if resuming and self._state.recoveries >= MOST_RECOVERIES:
            await run.emit(*repairs(self._state, CRASHES), sync=True)
            self._head = run.log.head
            return run.outcome("parked", "crash_loop")
        if order.kind == "wake" and (is_resumable(self._state) or not mailbox.due):
            _take_up(run)
            return run.outcome("done", NOTHING_NEW)  # somebody else was quicker
        if order.kind == "compact":
            return await self._compact(run)
        for event in order.beside:
            if not event.durable:
                run.show(run.stamped(event))
        if resuming and self._state.waiting:  # nobody waits for the answer: there is nothing to be done first
            self._unwanted |= {post.named("run_id") for post in posts if post.kind == CANCEL}
        opening = self._opening(order, resuming=resuming)
        taken = [PostTaken(post.kind, run_id=run.run_id) for post in late]
        await run.emit(*taken, *opening, sync=True, names=[post.id for post in late])
        faults.point("run.opened")
        if self._unwanted & {self._asked, order.run_id}:
            run.cancel("now")
        return await self._go(order, run, posts)

    async def _go(self, order: Order, run: Run, posts: Sequence[Post]) -> Outcome[Any]:
        """Drive the run that has been opened."""
        logger.info("run %s of session %s begins", run.run_id, self.session_id, extra=run.names)
        for post in posts:
            if post.kind == CANCEL:
                self.deliver(post)
        _going[self.key] = self
        ear = _Ear(self)
        try:
            outcome = await self._finish(order, run)
        finally:
            if _going.get(self.key) is self:  # and not one that has taken the session over
                del _going[self.key]
            await ear.close()
        ending = (outcome.status, outcome.reason)
        logger.info("run %s of session %s: %s %s", run.run_id, self.session_id, *ending, extra=run.names)
        return outcome

    async def _compact(self, run: Run) -> Outcome[Any]:
        """Sum the conversation up between two runs. What it says of itself belongs to none."""
        if self._state.interrupted:
            message = f"session {self.session_id!r} has a run that is not over: resume() it first, or cancel() it"
            raise UsageError(message)
        run.run_id = ""
        run.output = await run.compact("manual")
        self._head = run.log.head
        return run.outcome("done")

    def _resumed(self, order: Order) -> Order:
        before = self._interrupted_run()
        overrides: Options = {**restored(before.options, order.overrides), **order.overrides}
        return Order("resume", before.run_id, overrides, take_over=order.take_over)

    def _interrupted_run(self) -> RunStarted:
        before = self._state.run
        if before is None:
            message = f"there is no session {self.session_id!r} to resume: use run() to begin it"
            raise SessionNotFound(message)
        if not self._state.interrupted:
            status = self._state.ended.status if self._state.ended else ""
            message = f"session {self.session_id!r} has nothing to resume: its last run ended with status {status!r}"
            raise UsageError(message)
        if CALL in before.options:
            message = f"session {self.session_id!r} has nothing to resume: it was calling a tool; run() settles that"
            raise UsageError(message)
        return before

    def _sorted(self, posts: Sequence[Post], run_id: str, *, resuming: bool) -> tuple[Mailbox, list[Post]]:
        """What has come for this run, and what came too late for an earlier one."""
        mailbox = Mailbox(self.agent.steering_mode, self.agent.follow_up_mode)
        return mailbox, deliver_all(mailbox, posts, self._state, run_id, resuming=resuming)

    def _opening(self, order: Order, *, resuming: bool) -> list[Event]:
        """How the run begins, in the log."""
        run_id = order.run_id
        if resuming:
            return [RunResumed(run_id=run_id)]
        options = {CALL: order.tool} if order.kind == "call" else recorded(order.overrides)
        started = RunStarted(self.agent.name, options, order.input_id, run_id=run_id)
        before = repairs(self._state, UNANSWERED if self._state.waiting else CUT_OFF)
        said = order.messages if order.answer is None else (*order.messages, order.answer)
        beside = [msgspec.structs.replace(each, run_id=run_id) for each in order.beside if each.durable]
        return [*before, started, *beside, *[MessageAdded(each, run_id=run_id) for each in said]]

    async def _finish(self, order: Order, run: Run) -> Outcome[Any]:
        """Drive the run to its end. A loop that is thrown away on purpose is replaced by one made from the log."""
        engine = _answered if order.answer is not None else order.overrides.get("engine", self.agent.engine)
        if faults.always_resume and engine is react:
            engine = _forgetful
        if (output := order.overrides.get("output")) is not None:
            engine = held(engine, output)
        while True:
            try:
                outcome = await _to_its_end(run, engine)
            except Forgotten:
                run = await self._made_anew(order, run)
                continue
            self._head = run.log.head
            return outcome

    async def _made_anew(self, order: Order, run: Run) -> Run:
        self._state, self._head = State(), 0
        await self._catch_up()
        mailbox, _ = self._sorted(await self.store.posts(self.session_id), order.run_id, resuming=True)
        self.run = again = self._build(order, run.log.lease, mailbox)
        if run.mailbox.is_left:  # nobody waits for answers any more, whichever loop it is
            mailbox.leave()
        again.cancelling = run.cancelling
        again.interrupted_by = run.interrupted_by or ("cancelled" if run.cancelling == "after_tools" else "")
        return again

    async def _catch_up(self) -> None:
        """Take into account what has come into the log since we last looked."""
        events, self._head = await events_of(self.store, self.session_id, after=self._head)
        for event in events:
            self._state.apply(event)

    # -- what it is made of --------------------------------------------------------------------------------------------

    def _build(self, order: Order, lease: Lease, mailbox: Mailbox) -> Run:
        """The run that was asked for."""
        return build(
            self.agent,
            Place(
                session_id=self.session_id,
                run_id=order.run_id,
                log=Log(self.store, lease, self._head, self.agent.clock),
                state=self._state,
                fanout=self.fanout,
                mailbox=mailbox,
                prefixes=self._prefixes,
                may_wait=self.may_wait and order.kind != "call",
                loading=[each.name for each in order.beside if isinstance(each, SkillLoaded)],
                secrecy=self.secrecy,
            ),
            order.overrides,
        )

    def _report_dropped(self, name: str, error: BaseException) -> None:
        self.fanout.publish(Entry(0, self.agent.clock.now(), watcher_dropped(name, error)))


class _Ear:
    """Looks now and then for what other processes have posted, while a run goes on."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(POLL_SECONDS, self._begin)

    def _begin(self) -> None:
        self._task = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        driver = self._driver
        while True:
            try:
                for post in await driver.store.posts(driver.session_id):
                    driver.deliver(post)
            except StoreError as error:  # the next append will say so to whom it may concern
                logger.warning("posts to session %s cannot be read: %s", driver.session_id, error)
            await asyncio.sleep(POLL_SECONDS)

    async def close(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await wait_through((self._task,))


async def _forgetful(run: Run) -> Outcome[Any]:
    """As `react`, thrown away after each append; not any more when the run is being concluded."""
    run.forgettable = True
    try:
        return await react(run)
    finally:
        run.forgettable = False


async def _answered(run: Run) -> Outcome[Any]:
    """The engine of a run that somebody has answered in the place of the model."""
    return run.outcome("done")


def within_a_run() -> bool:
    """Whether this is a part of some run, as a tool is, or a lifespan that lasts as long as the run."""
    return bool(_driving.get())


def leave_the_run() -> None:
    """From here on, the current task is a part of no run: it goes on when the run that began it has ended."""
    _driving.set(frozenset())


def tell(key: tuple[int, str], post: Post) -> None:
    """Hand a post that was just stored to the run of this process that it is for, if there is one."""
    driver = _going.get(key)
    if driver is None or driver.task is None:
        return
    loop = driver.task.get_loop()
    if loop is asyncio.get_running_loop():
        driver.deliver(post)
    else:
        loop.call_soon_threadsafe(driver.deliver, post)


async def _to_its_end(run: Run, engine: Engine) -> Outcome[Any]:
    """Drive the run in a task of its own, which can be cancelled, and left behind if it does not even end then."""
    task = asyncio.ensure_future(execute(run, engine))
    cancelled = False
    while not task.done() and not run.left_behind.done():
        try:
            await asyncio.wait((task, run.left_behind), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the event loop is being closed: there is still time to end in good order
            cancelled = True
            run.interrupt("cancelled")
    task.add_done_callback(look_at)  # also when it is left behind, and ends later
    outcome = task.result() if task.done() else await _wind_up(run)
    if cancelled:
        raise asyncio.CancelledError
    return outcome


def _take_up(run: Run) -> None:
    """Let agents go on that worked in the background for a session of which nobody wants anything else."""
    if run.upkeep and run.state.inbox:
        from .subagents.crew import take_up  # which stands above this

        take_up(run)


def look_at(task: "asyncio.Future[Any]") -> None:
    """Take note of how a task ended, so that asyncio does not complain that nobody has."""
    if not task.cancelled():
        task.exception()


async def _wind_up(run: Run) -> Outcome[Any]:
    """End a run whose task does not: its log is taken from it, and every open call says so."""
    open_calls = [ToolCall(start.call_id, start.name) for start in run.state.started.values()]
    open_calls += [call for call in run.state.unsettled if call.call_id not in run.state.started]
    begun = [call for call in open_calls if call.call_id in run.state.begun]
    waiting = [call for call in open_calls if call not in begun]
    text = "The run was cancelled, and this did not stop; it may still be running."
    results = [uncertain(call, Status.CANCELLED, text) for call in begun]
    results += [not_started(call) for call in waiting]
    below = repairs_below(run.state, ("cancelled", run.interrupted_by, text))
    await run.take_over([*below, *[finished(run, each) for each in results]])
    run.output = run.state.latest if CALL in (run.state.run or RunStarted()).options else None
    outcome = run.interruption()
    await run.take_over([ended(run, outcome)])
    return outcome
