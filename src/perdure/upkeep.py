"""Keeps a store from growing for ever, and brings it back: retention by age, number and size; restoring a backup.

Above: the command line, and whoever looks after a store. Below: stores. What is removed is removed for good, with every
byte; so a session that somebody drives is left alone, and so is one that waits for an answer.
"""

# ruff: noqa: PTH111, PTH112 - pathlib would cost every start milliseconds
import contextlib
import os
from collections.abc import Sequence

from .core import check
from .core.error import ConfigError, SessionBusy, Unsupported
from .core.fold import fold
from .core.store import Maintained, SessionInfo, Store
from .keeping import every

CRITERIA = ("older_than_seconds", "keep", "max_bytes")
"""What sessions can be chosen by."""


async def prune(
    store: Store,
    *,
    older_than_seconds: float | None = None,
    keep: int | None = None,
    max_bytes: int | None = None,
    waiting_too: bool = False,
    now: float,
    dry_run: bool = False,
) -> list[SessionInfo]:
    """Remove the sessions that were not used for longest, give back their room, and say which they were.

    Those that were last used more than `older_than_seconds` before `now`; all but the `keep` that were used last; and
    as many more as it takes until the entries of the others have no more than `max_bytes`, as `size` counts them. The
    search index comes on top of these. At least one of the three has to be given; with several, each removes its share.

    A session that somebody drives is never removed, and one that waits for an answer only with `waiting_too`. Removing
    a session that was forked leaves its forks whole. With `dry_run` nothing is removed.
    """
    chosen = await expendable(
        store,
        older_than_seconds=older_than_seconds,
        keep=keep,
        max_bytes=max_bytes,
        waiting_too=waiting_too,
        now=now,
    )
    return chosen if dry_run else await remove(store, chosen)


async def expendable(
    store: Store,
    *,
    older_than_seconds: float | None = None,
    keep: int | None = None,
    max_bytes: int | None = None,
    waiting_too: bool = False,
    now: float,
) -> list[SessionInfo]:
    """The sessions that `prune` would remove, the oldest first."""
    _check(older_than_seconds, keep, max_bytes)
    sizes = {} if max_bytes is None else (await maintained(store).size()).sessions
    sessions = [each async for each in every(store)]
    sessions.sort(key=_last_used)
    left_bytes, left = sum(sizes.values()), len(sessions)
    chosen: list[SessionInfo] = []
    for info in sessions:
        too_old = older_than_seconds is not None and _last_used(info) < now - older_than_seconds
        too_many = keep is not None and left > keep
        too_large = max_bytes is not None and left_bytes > max_bytes
        if (too_old or too_many or too_large) and await _may_go(store, info, waiting_too=waiting_too):
            chosen.append(info)
            left -= 1
            left_bytes -= sizes.get(info.session_id, 0)
    return chosen


async def remove(store: Store, chosen: Sequence[SessionInfo]) -> list[SessionInfo]:
    """Delete sessions, and give back their room; says which. One that was used since it was chosen is left alone."""
    removed: list[SessionInfo] = []
    for info in chosen:
        now = await store.info(info.session_id)
        if now is None or now.updated_at != info.updated_at:
            continue
        with contextlib.suppress(SessionBusy):
            await store.delete(info.session_id)
            removed.append(info)
    if removed and isinstance(store, Maintained):
        await store.vacuum()
    return removed


def maintained(store: Store) -> Maintained:
    """The store, if it can tell its size, be made smaller and be copied."""
    if not isinstance(store, Maintained):
        kind = type(store).__name__
        raise Unsupported(f"a {kind} has no size and no backup: keep sessions in 'sqlite:PATH' or 'file:DIR'")
    return store


async def restore(backup: str | os.PathLike[str], spec: str) -> None:
    """Make the store that `spec` names out of a backup. It appears there whole or not at all, and replaces nothing.

    Raises `ConfigError` when something is there already, and `StoreError` when the backup is not in good order.
    """
    scheme, path = _place(spec)
    if scheme == "sqlite":
        import asyncio

        from .stores.sqlite.upkeep import restore as restore_file

        await asyncio.to_thread(restore_file, _expanded(backup), path)
        return
    from .stores.file.store import FileStore

    store = FileStore(_folder(backup))
    try:
        await store.backup(path)  # whoever copies a whole backup restores it
    finally:
        await store.aclose()


def _expanded(path: str | os.PathLike[str]) -> str:
    return os.path.expanduser(os.fspath(path))


def _folder(backup: str | os.PathLike[str]) -> str:
    path = _expanded(backup)
    if not os.path.isdir(path):
        raise ConfigError(f"{path!r} is no folder, as the backup of a 'file:DIR' store is: name another backup")
    return path


def _place(spec: str) -> tuple[str, str]:
    """The kind of a store and the path at which it lies."""
    scheme, _, path = spec.partition(":")
    if scheme not in {"sqlite", "file"} or not path.strip("/"):
        raise Unsupported(
            f"a store {spec!r} cannot be restored from a backup here: name one of 'sqlite:PATH' or 'file:DIR', and use "
            "the tools of the database for others"
        )
    return scheme, _expanded("/" + path.lstrip("/") if path.startswith("///") else path)


def _last_used(info: SessionInfo) -> float:
    """A fork, or what was imported, is younger than its entries."""
    return max(info.created_at, info.updated_at)


def _check(older_than_seconds: float | None, keep: int | None, max_bytes: int | None) -> None:
    if older_than_seconds is None and keep is None and max_bytes is None:
        raise ConfigError(f"prune() would remove everything or nothing: give one of {', '.join(CRITERIA)}")
    if older_than_seconds is not None:
        check.number("prune", "older_than_seconds", older_than_seconds)
    for name, value in (("keep", keep), ("max_bytes", max_bytes)):
        if value is not None:
            check.whole_number("prune", name, value)


async def _may_go(store: Store, info: SessionInfo, *, waiting_too: bool) -> bool:
    """Whether nobody drives it, and nobody is to answer something in it."""
    if not waiting_too and await _waits(store, info.session_id):
        return False
    try:
        lease = await store.acquire(info.session_id)
    except SessionBusy:
        return False
    await store.release(lease)
    return True


async def _waits(store: Store, session_id: str) -> bool:
    """Whether a question is open, or something is still to come into the inbox."""
    state = fold(await store.read(session_id))
    return bool(state.interrupted and state.questions) or bool(state.inbox)
