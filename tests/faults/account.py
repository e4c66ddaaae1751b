"""What a store must still hold, going by the book that `witness.py` keeps; and whether it does.

A log is one of those that it may be: the last that is certain, or a later one. Appends are whole or not there, so each
of them is one step in that list. It lists what is wrong instead of asserting it, so that a test can also demand that a
bug is found.
"""

from collections.abc import Sequence
from typing import TypeAlias

from perdure.events import Entry, MessageAdded
from perdure.stores import Hit, Post, SearchableStore, Store
from tests.faults.witness import Appended, Deleted, Posted, Record, Redacted

Logs: TypeAlias = list[tuple[Entry, ...]]

WORD = "perdure"
"""What every message of the mixed workload says, to be searched for."""
PAGE = 100
"""How many hits are asked for at once."""
TELLING = 40
"""A text as long as this is nowhere by chance."""


class Account:
    """What a session may hold, as far as the book tells."""

    def __init__(self) -> None:
        self.logs: Logs = [()]
        """What its log may be after a power cut: the last that is certain, and all later ones."""
        self.stored = 0
        """Those before this one are the past, as long as there was no power cut."""
        self.posts: dict[str, Post] = {}
        """What was posted, and must be waiting or taken."""
        self.doubtful_posts: dict[str, Post] = {}
        """What may be there too."""

    def may_become(self, log: tuple[Entry, ...]) -> None:
        """A change has been asked for."""
        if log != self.logs[-1]:
            self.logs.append(log)

    def has_become(self, log: tuple[Entry, ...], *, certain: bool) -> None:
        """It was acknowledged."""
        self.stored = max(place for place, each in enumerate(self.logs) if each == log)
        if certain:
            del self.logs[: self.stored]
            self.stored = 0

    def redact(self, entry: Entry, *, is_done: bool) -> None:
        """An entry may have another one in its place; or has, and nobody will see the old one again."""
        if is_done:
            self.logs = [with_replaced(log, entry) for log in self.logs]
        else:
            self.may_become(with_replaced(self.logs[-1], entry))

    def delete(self, *, is_done: bool) -> None:
        """It may be gone, with its posts; or is."""
        self.may_become(())
        if is_done:
            self.has_become((), certain=True)
        self.doubtful_posts = {} if is_done else {**self.doubtful_posts, **self.posts}
        self.posts = {}

    def with_added(self, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """The log when these are its last."""
        before = entries[0].seq - 1
        there = [log for log in reversed(self.logs) if log[-len(entries) :] == entries]
        fitting = [log for log in reversed(self.logs) if (log[-1].seq if log else 0) == before]
        return there[0] if there else fitting[0] + entries


def with_replaced(log: tuple[Entry, ...], entry: Entry) -> tuple[Entry, ...]:
    """The log with an entry in the place of the one that has its name."""
    return tuple(entry if each.id == entry.id else each for each in log)


def accounts(book: Sequence[Record]) -> dict[str, Account]:
    """The sessions that the book speaks of."""
    kept: dict[str, Account] = {}
    for wish, is_done in book:
        account = kept.setdefault(wish.session_id, Account())
        if isinstance(wish, Appended):
            log = account.with_added(wish.entries)
            account.may_become(log)
            if is_done:
                account.has_become(log, certain=wish.sync)
        elif isinstance(wish, Posted):
            (account.posts if is_done else account.doubtful_posts).setdefault(wish.post.id, wish.post)
        elif isinstance(wish, Redacted):
            for each in kept.values():
                each.redact(wish.entry, is_done=is_done)
        elif isinstance(wish, Deleted):
            account.delete(is_done=is_done)
        else:
            fork, log = kept.setdefault(wish.new_id, Account()), account.logs[-1][: wish.at]
            fork.may_become(log)
            if is_done:
                fork.has_become(log, certain=True)
    return kept


def erased(book: Sequence[Record]) -> set[str]:
    """The texts of which no byte may be left: what was deleted or redacted, and is in no fork."""
    kept = {text_of(entry) for account in accounts(book).values() for log in account.logs for entry in log}
    added = [entry for wish, _ in book if isinstance(wish, Appended) for entry in wish.entries]
    return {text for text in map(text_of, added) if len(text) >= TELLING and text not in kept}


def text_of(entry: Entry) -> str:
    """What an entry says beside the word that all have in common."""
    event = entry.event
    return event.message.text.removeprefix(WORD).strip() if isinstance(event, MessageAdded) else ""


async def violations(store: Store, book: Sequence[Record], *, after_cut: bool, search: bool = False) -> list[str]:
    """What is lost, torn, or came from nowhere; with `search` also what is not found."""
    known = accounts(book)
    wrong = [
        violation
        for session_id, account in known.items()
        for violation in await _session(store, session_id, account, after_cut=after_cut)
    ]
    strangers = {info.session_id for info in await store.list(limit=1000)} - set(known)
    wrong += [f"nobody has made {name}" for name in sorted(strangers)]
    return [*wrong, *(await _search(store, [*known]) if search else ())]


async def _search(store: Store, sessions: Sequence[str]) -> list[str]:
    """Everything that is there is found, once, and nothing else."""
    if not isinstance(store, SearchableStore):
        return []
    there = {(name, entry.seq): entry for name in sessions for entry in await store.read(name)}
    said = {
        entry.id
        for entry in there.values()
        if isinstance(entry.event, MessageAdded) and WORD in entry.event.message.text
    }
    hits = [(hit.session_id, hit.seq) for hit in await _all_hits(store)]
    found = [there[place].id for place in hits if place in there]
    wrong = [f"the search finds {place}, which is not there" for place in hits if place not in there]
    return (
        wrong if sorted(found) == sorted(said) else [*wrong, f"the search finds {len(found)} of {len(said)} messages"]
    )


async def _all_hits(store: SearchableStore) -> list[Hit]:
    hits: list[Hit] = []
    while page := await store.search(WORD, limit=PAGE, offset=len(hits)):
        hits += page
    return hits


async def _session(store: Store, session_id: str, account: Account, *, after_cut: bool) -> list[str]:
    log = tuple(await store.read(session_id))
    possible = account.logs if after_cut else account.logs[account.stored :]
    wrong = [] if log in possible else [_lost(session_id, log, possible)]
    await store.release(await store.acquire(session_id))  # what has to be repaired is repaired now
    if tuple(await store.read(session_id)) != log:
        wrong.append(f"{session_id} reads otherwise when it has been driven again")
    info = await store.info(session_id)
    if (info.entries if info else 0) != len(log):
        wrong.append(f"{session_id} is said to hold {info}, and holds {len(log)} entries")
    taken = {entry.id for entry in log}
    waiting = {post.id: post for post in await store.posts(session_id)}
    allowed = {**account.doubtful_posts, **account.posts}
    wrong += [f"the post {name} of {session_id} is lost" for name in account.posts if name not in {*waiting, *taken}]
    wrong += [f"the post {name} of {session_id} was taken, and waits" for name in waiting if name in taken]
    wrong += [f"nobody sent {post} to {session_id}" for name, post in waiting.items() if allowed.get(name) != post]
    return wrong


def _lost(session_id: str, log: Sequence[Entry], possible: Logs) -> str:
    lengths = sorted({len(each) for each in possible})
    is_prefix = any(each[: len(log)] == log for each in possible)
    kind = "is torn" if is_prefix and lengths[0] < len(log) else "has lost or changed entries"
    return f"{session_id} {kind}: it holds {len(log)} entries, and may hold {lengths}"
