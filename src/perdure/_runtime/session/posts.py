"""Deliver posts (messages stored for a session) to its run's mailbox: waiting ones first, later ones by polling."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from weakref import WeakKeyDictionary

import msgspec

from perdure._core.log.fold import State
from perdure._core.log.store import Post, Store, cancel_and_await_tasks, get_namespaced_session_id
from perdure._core.people.inbox import INBOX_POST
from perdure._core.people.mailbox import ANSWER_POST, CANCEL_POST, Delivery, Mailbox, list_posted_events
from perdure._core.values.clock import new_id, random_fraction
from perdure._core.values.error import StoreError
from perdure._core.values.event import Entry, InboxAdded, PostTaken, RunResumed, RunStarted

from .commands import DriverCommand, RunPromptCommand, RunStartValues

logger = logging.getLogger("perdure")

POLL_SECONDS = 1.0
"""The longest interval at which a run looks for posts of other processes. Posts of this process arrive at once."""
TICK = 0.1
"""The part of that interval after which it is found that a poller is due."""
_GOLDEN_RATIO = 0.618
"""Multiples of it, without their whole parts, are spread evenly, however many there are."""


def fill_mailbox(mailbox: Mailbox, posts: Sequence[Post], state: State, run_id: str, *, is_resumed: bool) -> list[Post]:
    """Put the posts (stored messages) of a session into the mailbox of its run; return those meant for an earlier run.

    These are cancels, answers and inbox results that come too late.
    """
    if not posts:
        return []
    questions = {each.ask_id for each in state.open_questions} if is_resumed else set[str]()
    added = [each.item_id for each in list_posted_events(posts) if isinstance(each, InboxAdded)]
    items = {*state.session_inbox, *added}
    late: list[Post] = []
    for post in posts:
        if (
            (post.kind == CANCEL_POST and post.text_field("run_id") != run_id)
            or (post.kind == ANSWER_POST and post.text_field("ask_id") not in questions)
            or (post.kind == INBOX_POST and post.text_field("item_id") not in items)
        ):
            late.append(post)
        else:
            mailbox.accept_post(post)
    return late


def add_earlier_posts(
    command: DriverCommand, plan: RunStartValues, late: Sequence[Post], mailbox: Mailbox, state: State
) -> RunStartValues:
    """Return the plan of a run that first stores what was posted before it.

    `late` are posts for an earlier run, which nobody gets any more. Messages that the run before has left over come
    before the prompt, which is newer.
    """
    is_prompt = isinstance(command, RunPromptCommand) and not (plan.is_resumed or plan.is_answered)
    messages, names = _take_messages_left_over(mailbox, state) if is_prompt else ([], [])
    if not (late or messages):
        return plan
    taken = tuple([PostTaken(post.kind, run_id=plan.run_id) for post in late])
    ids = [post.id for post in late]
    begins = next(place for place, event in enumerate(plan.opening) if isinstance(event, (RunStarted, RunResumed)))
    if messages:  # after the events that end a run which was cut off
        ids += [*[new_id() for _ in range(begins)], *names]
    opening = (*taken, *plan.opening[:begins], *messages, *plan.opening[begins:])
    return msgspec.structs.replace(plan, opening=opening, taken=ids)


def _take_messages_left_over(mailbox: Mailbox, state: State) -> Delivery:
    """Remove and return the messages that the last run has left over, because it was cancelled or cut off.

    A run that is done leaves none: what is waiting after one was posted for the next.
    """
    ended = state.run_ended_event
    if state.run is None or (ended is not None and ended.status == "done"):
        return [], []
    return mailbox.take_all(state.session_inbox)


def promote_follow_ups(mailbox: Mailbox) -> None:
    """Turn queued follow-ups into messages that are delivered at the next turn, unless other messages are due then.

    For a run that has no message yet, so that it begins with them.
    """
    if not mailbox.has_messages_due:
        mailbox.steering, mailbox.follow_ups = mailbox.follow_ups, mailbox.steering


class PostPoller:
    """Poller of the store during a run, for posts (messages to the session) from other processes and event loops.

    With `at_intervals=False` the store is only polled when `poll_soon` is called: for a session that no other process
    can reach. A task lives no longer than one poll, so that a run that waits has none.
    """

    __slots__ = ("_at_intervals", "_deliver", "_is_due_again", "_schedule", "_session_id", "_store", "_task")

    def __init__(
        self, store: Store, session_id: str, deliver: Callable[[Post], None], *, at_intervals: bool = True
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._deliver = deliver
        self._at_intervals = at_intervals
        self._task: asyncio.Task[None] | None = None
        self._is_due_again = False
        """True if something was posted while the store was being asked."""
        self._schedule = _get_schedule(asyncio.get_running_loop())
        if at_intervals:
            self._schedule.add(self)

    def begin_polling(self) -> None:
        """Poll the store for posts now, and then at intervals."""
        self._task = asyncio.ensure_future(self._poll_store())

    def poll_soon(self) -> None:
        """Poll the store as soon as possible: something was posted on another event loop of this process."""
        self._schedule.due_times.pop(self, None)
        if self._task is None:
            self.begin_polling()
        else:
            self._is_due_again = True

    async def _poll_store(self) -> None:
        self._is_due_again = True
        while self._is_due_again:
            self._is_due_again = False
            try:
                for post in await self._store.posts(self._session_id):
                    self._deliver(post)
            except StoreError as error:  # the next append fails too, and ends the run
                named = get_namespaced_session_id(self._store, self._session_id)
                logger.warning("posts to session %s cannot be read: %s", named, error)
        self._task = None
        if self._at_intervals:
            self._schedule.add(self)

    async def close(self) -> None:
        """Stop polling."""
        self._schedule.due_times.pop(self, None)
        if self._task is not None:
            await cancel_and_await_tasks((self._task,))


async def iterate_with_timeouts(entries: AsyncGenerator[Entry], seconds: float) -> AsyncGenerator[Entry | None]:
    """Yield log entries as they arrive, and `None` each time that none has arrived for `seconds`."""
    coming: asyncio.Future[Entry | None] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(entries, None))
            arrived, _ = await asyncio.wait((coming,), timeout=seconds)
            if not arrived:
                yield None
                continue
            entry, coming = coming.result(), None
            if entry is None:
                return  # the session was closed
            yield entry
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait((coming,))
        await entries.aclose()


class _PollSchedule:
    """Starts the polls of an event loop when they are due, with a single timer for all of them."""

    __slots__ = ("_is_ticking", "_spread", "due_times")

    def __init__(self) -> None:
        self.due_times: dict[PostPoller, float] = {}
        """The pollers that wait for their next poll, and when that is, by the clock of the event loop."""
        self._spread = random_fraction()
        # A flag, not the timer: that would refer to its loop, and a loop must not be kept alive by its schedule.
        self._is_ticking = False

    def add(self, poller: PostPoller) -> None:
        """Schedule the next poll of a poller within the polling interval, spread among those added together."""
        loop = asyncio.get_running_loop()
        self._spread = (self._spread + _GOLDEN_RATIO) % 1.0
        self.due_times[poller] = loop.time() + POLL_SECONDS * (0.6 + 0.4 * self._spread - TICK)
        if not self._is_ticking:
            self._start_timer(loop)

    def _start_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_ticking = True
        loop.call_later(POLL_SECONDS * TICK, self._begin_due)

    def _begin_due(self) -> None:
        """Start the pollers that are due."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for poller in [each for each, due_at in self.due_times.items() if due_at <= now]:
            del self.due_times[poller]
            poller.begin_polling()
        self._is_ticking = False
        if self.due_times:
            self._start_timer(loop)


_schedules: "WeakKeyDictionary[asyncio.AbstractEventLoop, _PollSchedule]" = WeakKeyDictionary()


def _get_schedule(loop: asyncio.AbstractEventLoop) -> _PollSchedule:
    """Return the schedule of the pollers of an event loop, made at first use."""
    schedule = _schedules.get(loop)
    if schedule is None:
        schedule = _schedules[loop] = _PollSchedule()
    return schedule
