"""Store maintenance: prune old sessions and unneeded file snapshots, and restore backups.

Deleted sessions cannot be recovered. So sessions with an active run are never deleted, and those that wait for an
answer only on request.
"""

# ruff: noqa: PTH111, PTH112 - pathlib would cost every start milliseconds
import contextlib
import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from perdure._core.log.fold import fold_entries
from perdure._core.log.reserved_ids import is_schedule_session
from perdure._core.log.store import MaintainableStore, SessionInfo, Store
from perdure._core.values import checks
from perdure._core.values.error import ConfigError, SessionBusy, UnsupportedByStore
from perdure._core.values.event import Entry, ValueKept
from perdure._io.files.folder_look import decode_look
from perdure._tools.files.records import (
    CHANGES_NAME,
    COMMAND_NAME,
    FILE_PREFIX,
    RESTORE_NAME,
    RestoreBegun,
    parse_changes_record,
    parse_command_record,
    parse_record,
    parse_restore_record,
)

from .session.stored import iterate_sessions

if TYPE_CHECKING:
    from perdure._io.files.snapshots import RemovedSnapshots, SnapshotFolder

CRITERIA = ("older_than_seconds", "keep", "max_bytes")
"""Criteria by which sessions are selected."""
SNAPSHOT_GRACE_SECONDS: Final = 3600.0
"""Contents of files that were stored more recently are kept: the log of a running session may not name them yet."""


async def prune(
    store: Store,
    *,
    older_than_seconds: float | None = None,
    keep: int | None = None,
    max_bytes: int | None = None,
    waiting_too: bool = False,
    now: float,
    dry_run: bool = False,
    snapshots: "SnapshotFolder | None" = None,
) -> list[SessionInfo]:
    """Delete the least recently used sessions of a store, free their space, and return the deleted sessions.

    Selected are those last used more than `older_than_seconds` before `now`; all but the `keep` most recently used; and
    as many more as needed until the entries of the rest have at most `max_bytes`, as `size` counts them, without the
    search index. At least one of the three is required; with several, each applies.

    A session with an active run is never deleted, and one that waits for an answer only with `waiting_too`. Forks of a
    deleted session stay complete. With `dry_run` nothing is deleted. With `snapshots`, contents of files that no
    session needs any more are deleted too, as by `prune_snapshots`.
    """
    chosen = await list_expendable_sessions(
        store,
        older_than_seconds=older_than_seconds,
        keep=keep,
        max_bytes=max_bytes,
        waiting_too=waiting_too,
        now=now,
    )
    if dry_run:
        return chosen
    removed = await delete_sessions(store, chosen)
    if snapshots is not None:
        await prune_snapshots(snapshots, store, now=now)
    return removed


async def prune_snapshots(
    snapshots: "SnapshotFolder", *stores: Store, now: float, grace_seconds: float = SNAPSHOT_GRACE_SECONDS
) -> "RemovedSnapshots":
    """Delete saved file contents that no session needs for an undo any more, and return how many there were.

    Args:
        snapshots: The folder.
        stores: All stores whose sessions store contents there, each as a whole.
        now: The time, in seconds since 1970.
        grace_seconds: Contents that were stored in this time before `now` are kept, so that runs may go on meanwhile.
    """
    import asyncio

    from perdure._io.files.snapshots import RemovedSnapshots

    checks.require_number("prune_snapshots", "grace_seconds", grace_seconds)
    if not stores:
        raise ConfigError("prune_snapshots() would remove everything: give the stores that use the folder")
    stored_before = now - grace_seconds
    if not await asyncio.to_thread(snapshots.has_stored_before, stored_before):
        return RemovedSnapshots()  # without reading the logs
    digests: set[str] = set()
    looks: set[str] = set()
    for store in stores:
        await _collect_digests(store, digests, looks)
    digests |= await asyncio.to_thread(_list_packs, snapshots, looks)
    return await asyncio.to_thread(snapshots.remove_unused, digests, stored_before=stored_before)


async def list_snapshot_digests(store: Store, session_id: str) -> set[str]:
    """Return the digests of the contents that a session needs for an undo: those before and after each change.

    Those of the stored looks at its folder, by which the next command is compared, are among them.
    """
    digests, looks = _list_digests(await store.read(session_id))
    return digests | looks


def _list_digests(entries: Sequence[Entry]) -> tuple[set[str], set[str]]:
    """Return the digests of the contents that a log names, and those of the looks at a folder that are still needed."""
    digests: set[str] = set()
    looks: dict[tuple[str, str], str] = {}
    last = ""
    for entry in entries:
        event = entry.event
        if not isinstance(event, ValueKept):
            continue
        if event.name.startswith(FILE_PREFIX):
            record = parse_record(event.value)
            if record is not None and record.before is not None:
                digests |= {record.digest, record.before}
        elif event.name == COMMAND_NAME and (command := parse_command_record(event.value)) is not None:
            last = command.look or last
            looks[event.run_id, command.call_id] = command.look
        elif event.name == CHANGES_NAME and (part := parse_changes_record(event.value)) is not None:
            digests |= {state.digest for each in part.changes for state in (each.before, each.after)}
            if part.is_last:  # what was there before is stored by itself
                looks.pop((part.run_id, part.call_id), None)
        elif event.name == RESTORE_NAME and isinstance(restore := parse_restore_record(event.value), RestoreBegun):
            digests |= {state.digest for each in restore.items for state in (each.now, each.wanted, each.back)}
    return digests, {*looks.values(), last} - {""}


def _list_packs(snapshots: "SnapshotFolder", looks: Collection[str]) -> set[str]:
    """Return the digests of the contents that looks at a folder need, and of the looks themselves."""
    found: set[str] = set()
    pending = [*looks]
    while pending:
        digest = pending.pop()
        if digest in found:
            continue
        found.add(digest)
        with contextlib.suppress(ConfigError):  # it is gone, or damaged: nothing can be found by it
            stored = decode_look(snapshots.load(digest))
            found |= {each.pack for each in stored.entries.values()}
            pending += [stored.base] if stored.base else []
    return found - {""}


async def _collect_digests(store: Store, digests: set[str], looks: set[str]) -> None:
    """Add the digests that sessions of the store name, of contents and of looks at folders."""
    seen: set[str] = set()
    is_complete = False
    while not is_complete:  # a session that is used meanwhile moves to the front of the list, past the page being read
        is_complete = True
        async for info in iterate_sessions(store):
            if info.session_id in seen:
                continue
            seen.add(info.session_id)
            is_complete = False
            named, seen_looks = _list_digests(await store.read(info.session_id))
            digests |= named
            looks |= seen_looks


async def list_expendable_sessions(
    store: Store,
    *,
    older_than_seconds: float | None = None,
    keep: int | None = None,
    max_bytes: int | None = None,
    waiting_too: bool = False,
    now: float,
) -> list[SessionInfo]:
    """Return the sessions that `prune` would delete, oldest first."""
    _check_criteria(older_than_seconds, keep, max_bytes)
    sizes = {} if max_bytes is None else (await require_maintainable_store(store).size()).sessions
    sessions = [each async for each in iterate_sessions(store)]
    sessions.sort(key=_last_used)
    left_bytes, left = sum(sizes.values()), len(sessions)
    chosen: list[SessionInfo] = []
    for info in sessions:
        too_old = older_than_seconds is not None and _last_used(info) < now - older_than_seconds
        too_many = keep is not None and left > keep
        too_large = max_bytes is not None and left_bytes > max_bytes
        if (too_old or too_many or too_large) and await _can_delete(store, info, waiting_too=waiting_too):
            chosen.append(info)
            left -= 1
            left_bytes -= sizes.get(info.session_id, 0)
    return chosen


async def delete_sessions(store: Store, chosen: Sequence[SessionInfo]) -> list[SessionInfo]:
    """Delete the chosen sessions, except those used since they were listed; free space, and return the deleted ones."""
    removed: list[SessionInfo] = []
    for info in chosen:
        now = await store.info(info.session_id)
        if now is None or now.updated_at != info.updated_at:
            continue
        with contextlib.suppress(SessionBusy):
            await store.delete(info.session_id)
            removed.append(info)
    if removed and isinstance(store, MaintainableStore):
        await store.vacuum()
    return removed


def require_maintainable_store(store: Store) -> MaintainableStore:
    """Return the store if it can report its size, vacuum and back up; raise `UnsupportedByStore` otherwise."""
    if not isinstance(store, MaintainableStore):
        kind = type(store).__name__
        raise UnsupportedByStore(f"a {kind} has no size and no backup: keep sessions in 'sqlite:PATH' or 'file:DIR'")
    return store


async def restore(backup: str | os.PathLike[str], spec: str) -> None:
    """Create the store named by `spec` from a backup, completely or not at all. Existing data is not replaced.

    The backup is verified by its checksums before anything is created. One without them, made where SQLite cannot
    write checksums, is read completely, and a warning in the log says that it is not verified. Raises `ConfigError` if
    something is already there, and `StoreError` if the backup is damaged.
    """
    import asyncio

    scheme, path = _parse_store_spec(spec)
    if scheme == "sqlite":
        from perdure._stores.sqlite.maintenance import restore as restore_file

        await asyncio.to_thread(restore_file, _expand_path(backup), path)
        return
    from perdure._stores.file.maintenance import restore_folder

    await asyncio.to_thread(restore_folder, _check_backup_folder(backup), path)


def _expand_path(path: str | os.PathLike[str]) -> str:
    return os.path.expanduser(os.fspath(path))


def _check_backup_folder(backup: str | os.PathLike[str]) -> str:
    path = _expand_path(backup)
    if not os.path.isdir(path):
        raise ConfigError(f"{path!r} is no folder, as the backup of a 'file:DIR' store is: name another backup")
    return path


def _parse_store_spec(spec: str) -> tuple[str, str]:
    """Return the kind and the path of a store. Raises `UnsupportedByStore` for kinds that cannot be restored here."""
    scheme, _, path = spec.partition(":")
    if scheme not in {"sqlite", "file"} or not path.strip("/"):
        raise UnsupportedByStore(
            f"a store {spec!r} cannot be restored from a backup here: name one of 'sqlite:PATH' or 'file:DIR', and use "
            "the tools of the database for others"
        )
    return scheme, _expand_path("/" + path.lstrip("/") if path.startswith("///") else path)


def _last_used(info: SessionInfo) -> float:
    """Return when a session was last used; for a fork or an import, at least when it was created."""
    return max(info.created_at, info.updated_at)


def _check_criteria(older_than_seconds: float | None, keep: int | None, max_bytes: int | None) -> None:
    if older_than_seconds is None and keep is None and max_bytes is None:
        raise ConfigError(f"prune() would remove everything or nothing: give one of {', '.join(CRITERIA)}")
    if older_than_seconds is not None:
        checks.require_number("prune", "older_than_seconds", older_than_seconds)
    for name, value in (("keep", keep), ("max_bytes", max_bytes)):
        if value is not None:
            checks.require_int("prune", name, value)


async def _can_delete(store: Store, info: SessionInfo, *, waiting_too: bool) -> bool:
    """Return True if a session has no active run and waits for no answer, and is not one of schedules."""
    if is_schedule_session(info.session_id):
        return False
    if not waiting_too and await _is_waiting(store, info.session_id):
        return False
    try:
        lease = await store.acquire(info.session_id)
    except SessionBusy:
        return False
    await store.release(lease)
    return True


async def _is_waiting(store: Store, session_id: str) -> bool:
    """Return True if a session has an open question or a pending inbox item."""
    state = fold_entries(await store.read(session_id))
    return bool(state.is_interrupted and state.open_questions) or bool(state.session_inbox)
