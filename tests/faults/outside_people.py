"""Those who use the sessions of the outside search, each in a process of its own, by what any program can call.

Above: `outside.py`, which kills them. Below: `outside_world.py`. A *driver* runs, resumes, wakes and attends sessions;
a *meddler* steers, follows up, answers, resolves and cancels; the *finisher* brings everything to its end.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec

from perdure import Session, SessionBusy, SessionNotFound, ShuttingDown, StoreError, UsageError
from perdure._core.values.clock import new_id
from perdure._runtime.session import posts
from perdure._runtime.session import stored as stored_session
from perdure._runtime.subagents import background
from perdure.background import Shutdown
from perdure.engines import State
from perdure.events import Entry, MessageAdded, RunEnded, RunStarted, TextDelta, TurnStarted
from perdure.stores import Fenced, Lease, Store, UnsupportedByStore
from tests.faults.children import Place, Tell
from tests.faults.mistakes import MISTAKES
from tests.faults.outside_ledger import Ledger
from tests.faults.outside_plan import LAST_ANSWER, LAST_PROMPT, PROMPT
from tests.faults.outside_world import BERTHS, build_agent

POLL_SECONDS = 0.01
"""How often drivers look for posts of other processes; without this a run would be over before the first look."""
MOST_TASKS = 30
"""Prompts for each session."""
AT_ONCE = 2
"""Sessions that a driver works on at the same time."""
TAKE_OVER_SHARE = 0.3
"""How often somebody takes a session that is busy."""
MOST_ROUNDS = 150
"""So often the finisher looks at a session; then it will never end."""
CHANGED = "nothing to resume"
"""What is said when another process has ended the run since we looked."""
ATTENDED_SECONDS = 0.2
LATEST_SECONDS = 10.0
"""How long the finisher waits for those who work in the background."""
UNREACHABLE = "could not be used for"
IN_BACKGROUND = "runner-"
OUTPUT_EVERY = 4
"""Of so many prompts one asks for a value."""


class Part(msgspec.Struct, frozen=True):
    """What a process is to do, and where."""

    place: Place
    ledger: str
    seed: str
    """Of the plan, the same for all."""
    own_seed: str
    """Of what this process chooses."""
    sessions: Sequence[str]
    bug: str = ""
    """The name of a bug to have, for the tests of the test."""


def drive(part: Part, tell: Tell) -> None:
    """Run sessions until the process is told to end."""
    asyncio.run(_in_house(part, tell, _drive))


def meddle(part: Part, tell: Tell) -> None:
    """Post to sessions until the process is told to end."""
    asyncio.run(_in_house(part, tell, _meddle))


def finish(part: Part, tell: Tell) -> None:
    """Bring all sessions to their ends."""
    asyncio.run(_in_house(part, tell, _finish))


def settle_in(part: Part) -> None:
    """Make this process one of those that use the sessions."""
    random.seed(part.own_seed)
    logging.disable()  # whoever is replaced says so, and that is what happens here all the time
    posts.POLL_SECONDS = background.BUSY_RETRY_SECONDS = stored_session.WATCH_POLL_SECONDS = POLL_SECONDS
    cast("Any", Session.attend).__kwdefaults__["seconds"] = POLL_SECONDS  # which those in the background use
    if part.bug:
        MISTAKES[part.bug]()


async def _in_house(part: Part, tell: Tell, work: Callable[..., Awaitable[None]]) -> None:
    settle_in(part)
    ledger = Ledger(part.ledger)
    store = witnessed(part.place.opened(), ledger)
    async with Shutdown() as shutdown:
        tell("ready")
        users = [User(part, store, ledger, shutdown, session_id) for session_id in part.sessions]
        await work(users, shutdown)
    await store.aclose()


def witnessed(store: Store, ledger: Ledger) -> Store:
    """Return the store, which notes each lease that it gives."""
    acquire = store.acquire

    async def noting(session_id: str, *, take_over: bool = False) -> Lease:
        lease = await acquire(session_id, take_over=take_over)
        ledger.note("driving", session_id, words="taken over" if take_over else "", fence=lease.fence)
        return lease

    store.acquire = noting  # type: ignore[method-assign]
    return store


async def _drive(users: "Sequence[User]", shutdown: Shutdown) -> None:
    await asyncio.gather(*[_drive_in_turn(users, shutdown) for _ in range(AT_ONCE)])


async def _drive_in_turn(users: "Sequence[User]", shutdown: Shutdown) -> None:
    while not shutdown.requested:
        await random.choice(users).drive()
        await asyncio.sleep(random.uniform(0, 0.002))


async def _meddle(users: "Sequence[User]", shutdown: Shutdown) -> None:
    while not shutdown.requested:
        await random.choice(users).meddle()
        await asyncio.sleep(random.uniform(0, 0.01))


async def _finish(users: "Sequence[User]", _shutdown: Shutdown) -> None:
    await finish_all(users)


async def finish_all(users: "Sequence[User]") -> None:
    """Bring all sessions to their ends; the last prompts are given when nobody works in the background any more."""
    for user in users:
        await user.settle()
    working = [task for task in asyncio.all_tasks() if "BackgroundAgents" in task.get_coro().__qualname__]  # type: ignore[union-attr]
    if working:  # they may pass on a result that has come late
        await asyncio.wait(working, timeout=LATEST_SECONDS)
    for user in users:
        await user.finish()


class User:
    """One session, as this process uses it."""

    def __init__(self, part: Part, store: Store, ledger: Ledger, shutdown: Shutdown, session_id: str) -> None:
        self._part = part
        self._ledger = ledger
        self._id = session_id
        patience = random.choice((0.0, 0.01))
        agent = build_agent(ledger, part.seed, store, answer_timeout_seconds=patience, watchers=[self._watch])
        self._session: Session[Any] = shutdown.wrap_agent(agent).session(session_id)
        self._shown: dict[tuple[str, str], str] = {}
        self._name = new_id()[-12:]
        self._saying = asyncio.Lock()
        self._said = 0
        self._prompts = {LAST_PROMPT}
        """What was sent here: watchers of an agent that attends to all sessions hear the prompts of others too."""

    # -- driving -------------------------------------------------------------------------------------------------------

    async def drive(self, most_others: int = 3) -> None:
        """Go on with what was cut off, or begin the next thing, as some program might."""
        state = await self._session.read_state()
        go_on = state.is_interrupted and random.random() < 0.9
        work = asyncio.ensure_future(self._attempt(self._go_on() if go_on else self._begin(state)))
        others = [
            asyncio.ensure_future(self._disturb(work)) for _ in range(random.choice((0, 0, 0, 0, 1, most_others)))
        ]
        try:
            await asyncio.gather(work, *others)
        finally:
            for each in others:
                each.cancel()

    async def _begin(self, state: State, *, take_over: bool = False) -> Any:
        number = sum(name.startswith(PROMPT) for name in state.runs_by_input_id)
        if number >= MOST_TASKS:
            return None
        name = f"{PROMPT}{number}"
        self._prompts.add(name)
        output = int if number % OUTPUT_EVERY == 1 else None
        return await self._session.run(name, input_id=name, output=output, take_over=take_over)

    async def _go_on(self, *, take_over: bool = False) -> Any:
        chosen = 1.0 if take_over else random.random()
        if chosen < 0.6:
            return await self._session.wake()
        if chosen < 0.75:
            return await self._attend()
        return await self._session.resume(take_over=take_over)

    async def _attend(self) -> Any:
        """Wait for one outcome, for a moment, of this session or of any; to stop that is one more way to cancel."""
        everybody = random.random() < 0.5
        attend = self._session.agent.attend_all if everybody else self._session.attend
        attending = cast("AsyncGenerator[Any]", attend(seconds=POLL_SECONDS))
        try:
            outcome = await asyncio.wait_for(anext(attending), ATTENDED_SECONDS)
        except (TimeoutError, StopAsyncIteration):  # nothing to do, or the process was asked to end
            return None
        finally:
            await attending.aclose()
        if isinstance(outcome.error, UsageError):
            raise outcome.error
        return outcome

    async def _attempt(self, work: Awaitable[Any]) -> None:
        """Do it, and note how it ended. Whoever is busy is sometimes replaced."""
        try:
            self._note_end(await work)
        except SessionBusy:
            if random.random() < TAKE_OVER_SHARE:
                await self._take_over()
        except (Fenced, SessionNotFound, ShuttingDown) as error:
            self._ledger.note(type(error).__name__, self._id)
        except UsageError as error:
            if CHANGED not in str(error):
                raise
        except StoreError as error:
            self._accept_pause(error)
        except asyncio.CancelledError:
            self._ledger.note("caller cancelled", self._id)

    async def _take_over(self) -> None:
        with suppress(SessionBusy, SessionNotFound, UsageError, asyncio.CancelledError):
            state = await self._session.read_state()
            work = self._go_on(take_over=True) if state.is_interrupted else self._begin(state, take_over=True)
            try:
                self._note_end(await work)
            except (Fenced, UnsupportedByStore):  # the second: a lock of a file cannot be taken from whoever lives
                pass
            except StoreError as error:
                self._accept_pause(error)

    def _accept_pause(self, error: StoreError) -> None:
        """A process that slept longer than its lease finds no connection to the database in time."""
        if UNREACHABLE not in str(error):
            raise error
        self._ledger.note("unreachable", self._id)

    def _note_end(self, outcome: Any) -> None:
        if outcome is not None:
            error = "" if outcome.error is None else f" {type(outcome.error).__name__}: {outcome.error}"
            words = f"{outcome.status} {outcome.reason}{error}"
            self._ledger.note("ended", outcome.session_id or self._id, outcome.run_id, words)

    async def _disturb(self, work: "asyncio.Future[None]") -> None:
        """While it runs: cancel it, cancel whoever waits for it, or tell it more, from other tasks of this process."""
        for _ in range(random.randint(1, 4)):
            await asyncio.sleep(random.choice((0.0, random.uniform(0, 0.004), random.uniform(0, 0.02))))
            if work.done():
                return
            chosen = random.random()
            if chosen < 0.4:
                self._ledger.note("cancel here", self._id)
                await self._session.cancel(random.choice(("now", "now", "after_tools", "after_turn")))
            elif chosen < 0.5:
                self._ledger.note("cancel caller", self._id)
                work.cancel()
            elif chosen < 0.7:
                await self._say()

    async def _watch(self, entry: Entry) -> None:
        """Note each prompt that is accepted; and whether a reply is what was shown of it."""
        event = entry.event
        key = (event.run_id, event.path)
        if IN_BACKGROUND in event.path:  # its events are shown under whichever run is the last
            return
        if isinstance(event, RunStarted) and entry.seq and event.input_id in self._prompts and not event.path:
            self._ledger.note("accepted", self._id, event.input_id, event.run_id)
        elif isinstance(event, RunEnded) and entry.seq:
            self._ledger.note("over", self._id, event.run_id)
        elif isinstance(event, TurnStarted):
            self._shown[key] = ""
        elif isinstance(event, TextDelta):
            self._shown[key] = self._shown.get(key, "") + event.text
        elif isinstance(event, MessageAdded) and event.message.role == "assistant":
            shown, stored = self._shown.pop(key, None), event.message.text
            if shown is not None and shown != stored:
                self._ledger.note("WRONG", self._id, words=f"{shown!r} was shown, and {stored!r} stored")

    # -- from outside --------------------------------------------------------------------------------------------------

    async def meddle(self) -> None:
        """Do something that needs no lease."""
        chosen = random.random()
        try:
            if chosen < 0.45:
                await self._answer_all()
            elif chosen < 0.75:
                await self._resolve_all()
            elif chosen < 0.97:
                if chosen < 0.8:
                    await self._say()
            else:
                self._ledger.note("cancelling", self._id)
                did = await self._session.cancel(random.choice(("now", "now", "after_tools", "after_turn")))
                self._ledger.note("cancelled", self._id, words=str(did))
        except (SessionNotFound, SessionBusy):
            pass
        except StoreError as error:
            self._accept_pause(error)

    async def _say(self) -> None:
        """Steer or follow up; now and then twice under the same id, as whoever got no answer would."""
        kind, name = random.choice(("steer", "steer", "follow_up")), new_id()
        async with self._saying:  # whoever says two things at once does not know which is the first
            self._said += 1
            words = f"by the way, {kind} {self._name} {self._said}"
            for _ in range(random.choice((1, 1, 1, 2))):
                is_new = await getattr(self._session, kind)(words, post_id=name)
                self._ledger.note("posted", self._id, name, f"{is_new} {words}")

    async def _answer_all(self) -> int:
        taken = 0
        for question in await self._session.questions():
            if question.about == "permission":
                answer: Any = random.random() < 0.8
            elif question.about == "settlement":
                answer = random.choice(("retry", "retry", "skip", "it is done"))
            else:
                answer = random.choice(BERTHS)
            began = time.monotonic()
            try:
                is_taken = await self._session.answer(question.ask_id, answer)
            except UsageError:  # it was answered, or its run is over, since we looked
                continue
            self._ledger.note("answered", self._id, question.ask_id, f"{is_taken} {began} {answer}")
            taken += is_taken
        return taken

    async def _resolve_all(self) -> int:
        pending = [each for each in await self._session.inbox() if each.status == "pending" and each.tag == "order"]
        for item in pending:
            response = f"response {new_id()}"
            with suppress(UsageError):
                is_taken = await self._session.resolve(item.item_id, response)
                self._ledger.note("resolved", self._id, item.item_id, f"{is_taken} {response}")
        return len(pending)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Answer, resolve and go on until there is nothing left."""
        for _ in range(MOST_ROUNDS):
            if not await self._go_on_if_needed():
                return

    async def _go_on_if_needed(self) -> bool:
        """Answer, resolve and go on, once; return False if there was nothing left."""
        await self._resolve_all()
        await self._answer_all()
        state = await self._session.read_state()
        if state.is_interrupted:
            await self._session.resume()
            return True
        if await self._session.wake() is not None:
            return True
        if any(each.status == "pending" for each in await self._session.inbox()):
            await asyncio.sleep(POLL_SECONDS)  # somebody works in the background
            return True
        return False

    async def finish(self) -> None:
        """Go on until there is nothing left, and one prompt more has its answer."""
        for _ in range(MOST_ROUNDS):
            if await self._go_on_if_needed():
                continue
            outcome = await self._session.run(LAST_PROMPT, input_id=LAST_PROMPT)
            self._note_end(outcome)
            if outcome.text == LAST_ANSWER and not await self._session.store.posts(self._id):
                return
        posts_left = [post.id for post in await self._session.store.posts(self._id)]
        items = [f"{each.tag} {each.status}" for each in await self._session.inbox() if each.status == "pending"]
        self._ledger.note("WRONG", self._id, words=f"it does not come to its end: posts {posts_left}, inbox {items}")
