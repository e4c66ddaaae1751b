"""Delivery of posts (stored messages to a session) to its run: those found at the start, and new ones by polling."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence

from perdure.core.clock import random_fraction
from perdure.core.error import StoreError
from perdure.core.event import Entry, InboxAdded
from perdure.core.fold import State
from perdure.core.inbox import INBOX_POST
from perdure.core.mailbox import ANSWER_POST, CANCEL_POST, Mailbox, list_posted_events
from perdure.core.store import Post, Store, wait_despite_cancel

logger = logging.getLogger("perdure")

POLL_SECONDS = 1.0
"""The longest interval at which a run looks for posts of other processes. Posts of this process arrive at once."""


def _choose_interval() -> float:
    """Return the time until the next look, somewhat at random: sessions that began together do not all look at once."""
    return POLL_SECONDS * (0.6 + 0.4 * random_fraction())


def sort_posts(mailbox: Mailbox, posts: Sequence[Post], state: State, run_id: str, *, is_resumed: bool) -> list[Post]:
    """Put the posts for a run into its mailbox; return those that are too late, as they were for an earlier run."""
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


def promote_follow_ups(mailbox: Mailbox) -> None:
    """Deliver follow-ups now if no other message is due: no run is in progress that they could follow."""
    if not mailbox.has_messages_due:
        mailbox.steering, mailbox.follow_ups = mailbox.follow_ups, mailbox.steering


class PostPoller:
    """Polls the store during a run for posts (messages to the session) that other processes have stored."""

    def __init__(self, store: Store, session_id: str, deliver: Callable[[Post], None]) -> None:
        self._store = store
        self._session_id = session_id
        self._deliver = deliver
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_choose_interval(), self._begin_polling)

    def _begin_polling(self) -> None:
        self._task = asyncio.ensure_future(self._poll_store())

    async def _poll_store(self) -> None:
        while True:
            try:
                for post in await self._store.posts(self._session_id):
                    self._deliver(post)
            except StoreError as error:  # the next append fails too, and ends the run
                logger.warning("posts to session %s cannot be read: %s", self._session_id, error)
            await asyncio.sleep(_choose_interval())

    async def close(self) -> None:
        """Stop polling."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await wait_despite_cancel((self._task,))


async def iterate_with_timeouts(entries: AsyncGenerator[Entry], seconds: float) -> AsyncGenerator[Entry | None]:
    """Yield the entries, and `None` whenever none has arrived for `seconds`."""
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
