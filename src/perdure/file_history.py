"""Changes that tools have made to files in a session: show them, undo and redo them, fork with the files.

The log has the digests of each file before and after each change (see `perdure.toolkits.file_reads_and_changes`), and a
snapshot backend has the contents. A file is restored only if it is as the change left it, so that no later work is
lost. Changes that commands of a shell have made are not known, and not undone: `FileHistory.commands` lists the
commands. The changes of background agents are in the histories of their own sessions.
"""

# ruff: noqa: PTH100, PTH111 - a Path would cost every start milliseconds
import inspect
import os
from collections.abc import Awaitable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from .core import argument_checks
from .core.error import ConfigError
from .core.event import ValueKept
from .files.confined_folder import FileRefused
from .files.jail import FileContent, Jail
from .runtime.background_agent_task import list_background_jobs
from .runtime.session import Session
from .toolkits.file_changing_command_records import COMMAND_NAME, parse_command_record
from .toolkits.file_reads_and_changes import FILE_PREFIX, NO_FILE, FileAccessRecord, FileSnapshotBackend, parse_record

T = TypeVar("T")

RestoreStatus: TypeAlias = Literal["restored", "unchanged", "conflict", "refused"]
"""Result for one file. `unchanged`: it was so already. `conflict`: it was changed by others, and is left as it is."""


class FileChange(Struct, frozen=True, kw_only=True):
    """A change that a tool call has made to a file."""

    seq: int
    """Number of the entry in the log."""
    run_id: str
    call_id: str
    path: str
    """Path of the file, relative to `root`."""
    root: str
    """The working folder of the tool."""
    before: str
    """Digest of the content before; empty if there was no file."""
    after: str
    """Digest of the content after."""
    mode: int | None = None
    """Permission bits before."""
    undone: bool = False
    """True if its run was undone, and not redone since."""


class UntrackedCommand(Struct, frozen=True, kw_only=True):
    """A shell command that a tool call has run, and that may have changed files: what it changed is not recorded."""

    seq: int
    """Number of the entry in the log."""
    run_id: str
    call_id: str
    line: str
    """The command line."""
    root: str
    """The working folder of the command."""


class RestoredFile(Struct, frozen=True, kw_only=True):
    """Result of an undo or redo for one file: its path, status, and the digest of the content it should have."""

    path: str
    status: RestoreStatus
    digest: str
    """Digest of the content that it should have; empty if there should be no file."""
    reason: str = ""
    run_id: str = ""
    """The run that was undone or redone."""


class FileHistory:
    """The changes that the tools of a session have made to files, with operations to undo and redo them.

    A subagent that is called as a tool works in the session of its caller. A background agent has a session of its own:
    `list_background_histories`.
    """

    def __init__(
        self, session: Session[Any], snapshots: FileSnapshotBackend, *, workdir: str | os.PathLike[str] | None = None
    ) -> None:
        """Look at a session.

        Args:
            session: The session.
            snapshots: The contents, where the tools of the session have stored them.
            workdir: The working folder; by default the one that the log names.
        """
        if not isinstance(session, Session):
            argument_checks.raise_config_error("FileHistory", "session", session, "give a session of an agent")
        if not callable(getattr(snapshots, "load", None)):
            argument_checks.raise_config_error("FileHistory", "snapshots", snapshots, "give SnapshotFolder(folder)")
        self._session = session
        self._snapshots = snapshots
        self._workdir = None if workdir is None else os.path.realpath(workdir)

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self._session.session_id

    async def list_background_histories(self) -> "list[FileHistory]":
        """Return the histories of the background agents of this session, and of theirs, in the order of their tasks."""
        found: list[FileHistory] = []
        for job in list_background_jobs(await self._session.read_state(), self._session.store):
            if job.session_id.startswith(f"{self.session_id}/"):  # else the session that this was forked from gave it
                session = Session(self._session.agent, job.session_id, self._session.store)
                history = FileHistory(session, self._snapshots, workdir=self._workdir)
                found += [history, *await history.list_background_histories()]
        return found

    async def changes(self, run_id: str = "") -> list[FileChange]:
        """Return the changes of the session, or of one run, in order.

        A call that was repeated because the process died counts once.
        """
        found: list[FileChange] = []
        undone: set[str] = set()
        for entry in await self._session.store.read(self._session.session_id):
            event = entry.event
            if not isinstance(event, ValueKept) or not event.name.startswith(FILE_PREFIX):
                continue
            record = parse_record(event.value)
            if record is None or record.before is None:
                continue
            if record.restored:
                (undone.add if record.restored == "undo" else undone.discard)(record.call_id)
            elif not run_id or event.run_id == run_id:
                found.append(_to_change(entry.seq, event, record))
        return [_mark_undone(each) if each.run_id in undone else each for each in _drop_repeated(found)]

    async def commands(self, run_id: str = "") -> list[UntrackedCommand]:
        """Return the commands of the session, or of one run, that may have changed files, in order.

        Commands that are known to only read are not among them. `undo` does not take back what they changed.
        """
        found: list[UntrackedCommand] = []
        for entry in await self._session.store.read(self._session.session_id):
            event = entry.event
            if not isinstance(event, ValueKept) or event.name != COMMAND_NAME or run_id not in {"", event.run_id}:
                continue
            if (record := parse_command_record(event.value)) is not None:
                found.append(
                    UntrackedCommand(
                        seq=entry.seq,
                        run_id=event.run_id,
                        call_id=record.call_id,
                        line=record.line,
                        root=record.root,
                    )
                )
        return found

    async def undo(self, run_id: str = "", *, dry_run: bool = False, overwrite: bool = False) -> list[RestoredFile]:
        """Give the files that a run has changed the content from before it; by default the last run that is not undone.

        What commands have changed stays: see `commands`.

        Args:
            run_id: The run.
            dry_run: True to change nothing, and only return what would be done.
            overwrite: True to restore also files that others have changed since.
        """
        return await self._restore("undo", run_id, dry_run=dry_run, overwrite=overwrite)

    async def redo(self, run_id: str = "", *, dry_run: bool = False, overwrite: bool = False) -> list[RestoredFile]:
        """Give the files the content from after a run again; by default of the run that was undone last.

        The options are those of `undo`.
        """
        return await self._restore("redo", run_id, dry_run=dry_run, overwrite=overwrite)

    async def load(self, digest: str) -> bytes:
        """Return a content by its digest; nothing for the empty digest. Raises `ConfigError` if it is not there."""
        return b"" if digest == NO_FILE else await _await(self._snapshots.load(digest))

    async def fork(
        self, folder: str | os.PathLike[str], *, at: int | None = None, session_id: str | None = None
    ) -> Session[Any]:
        """Fork the session at an entry, with a copy of its working folder in which the files are as they were then.

        Args:
            folder: Where to put the copy; it must not exist.
            at: The number of the last entry of the fork; by default all.
            session_id: The id of the fork.

        Raises `ConfigError` if a content is missing; then there is neither a fork nor a copy. Files that only others
        than the session's tools have changed are copied as they are.
        """
        place = _find_free_place(folder)
        changes = await self.changes()
        root = self._find_root(changes)
        later = [each for each in changes if at is not None and each.seq > at]
        first_later = {each.path: each for each in reversed(later)}
        contents = {each.path: await self.load(each.before) for each in first_later.values()}
        await _copy_folder(root, place)
        jail = Jail(place)
        try:
            for path, change in first_later.items():
                _put(jail, path, change.before, contents[path], change.mode, expected=None)
        finally:
            jail.close()
        return await self._session.fork(session_id, at=at)

    # -- restoring -----------------------------------------------------------------------------------------------------

    async def _restore(
        self, way: Literal["undo", "redo"], run_id: str, *, dry_run: bool, overwrite: bool
    ) -> list[RestoredFile]:
        changes = await self.changes()
        chosen = _choose_run(changes, way, run_id)
        if not chosen:
            return []
        jail = Jail(self._find_root(chosen))
        try:
            done: list[RestoredFile] = []
            for path in dict.fromkeys([each.path for each in chosen]):
                own = [each for each in chosen if each.path == path]
                start, end = own[0].before, own[-1].after
                wanted, expected = (start, end) if way == "undo" else (end, start)
                mode = own[0].mode if way == "undo" else None
                restored = await self._restore_file(
                    jail, path, wanted, None if overwrite else expected, mode, dry_run=dry_run
                )
                if restored.status in {"restored", "unchanged"} and not dry_run:
                    record = FileAccessRecord(wanted, expected, chosen[0].run_id, jail.root, mode, restored=way)
                    await self._session.keep(FILE_PREFIX + path, record)
                done.append(replace(restored, run_id=chosen[0].run_id))
            return done
        finally:
            jail.close()

    async def _restore_file(
        self, jail: Jail, path: str, wanted: str, expected: str | None, mode: int | None, *, dry_run: bool
    ) -> RestoredFile:
        def answer(status: RestoreStatus, reason: str = "") -> RestoredFile:
            return RestoredFile(path=path, status=status, digest=wanted, reason=reason)

        try:
            now = _read_now(jail, path)
            current = NO_FILE if now is None else now.digest
            if current == wanted:
                return answer("unchanged")
            if expected is not None and current != expected:
                return answer("conflict", "it has been changed since by others")
            data = await self.load(wanted)
            if not dry_run:
                _put(jail, path, wanted, data, mode, expected=current)
        except ConfigError as error:
            return answer("refused", str(error))
        return answer("restored")

    def _find_root(self, changes: Sequence[FileChange]) -> str:
        """Return the folder of the changes. Raises `ConfigError` if it is another than the one that was named."""
        roots = {each.root for each in changes}
        if self._workdir is not None:
            return self._workdir
        if len(roots) != 1:
            raise ConfigError("the log names no single working folder: give FileHistory(…, workdir=…)")
        return roots.pop()


def _to_change(seq: int, event: ValueKept, record: FileAccessRecord) -> FileChange:
    return FileChange(
        seq=seq,
        run_id=event.run_id,
        call_id=record.call_id,
        path=event.name.removeprefix(FILE_PREFIX),
        root=record.root,
        before=record.before or NO_FILE,
        after=record.digest,
        mode=record.mode,
    )


def _drop_repeated(changes: Sequence[FileChange]) -> list[FileChange]:
    """Leave out changes that a call has stored and not made because the process died: it has stored them again."""
    last: dict[str, FileChange] = {}
    dropped: set[int] = set()
    for change in changes:
        before = last.get(change.path)
        if before is not None and replace(before, seq=change.seq) == change:
            dropped.add(before.seq)
        last[change.path] = change
    return [each for each in changes if each.seq not in dropped]


def _mark_undone(change: FileChange) -> FileChange:
    return replace(change, undone=True)


def _choose_run(changes: Sequence[FileChange], way: str, run_id: str) -> list[FileChange]:
    """Return the changes of a run; without one, of the last that is not undone, or of the first that is."""
    wanted = [each for each in changes if each.undone == (way == "redo")]
    if not run_id and wanted:
        run_id = wanted[-1].run_id if way == "undo" else wanted[0].run_id
    return [each for each in changes if each.run_id == run_id]


def _read_now(jail: Jail, path: str) -> FileContent | None:
    """Return the content of a file; `None` if there is none."""
    try:
        return jail.read(jail.resolve(path))
    except FileRefused as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def _put(jail: Jail, path: str, digest: str, data: bytes, mode: int | None, *, expected: str | None) -> None:
    """Give a file a content, or delete it if it should not exist."""
    target = jail.resolve(path)
    if digest != NO_FILE:
        jail.write(target, data, expected=expected, mode=mode)
        return
    now = _read_now(jail, path)
    if now is not None:
        jail.delete(target, expected=now.digest if expected is None else expected)


def _find_free_place(folder: str | os.PathLike[str]) -> str:
    place: str = os.path.abspath(os.path.expanduser(os.fspath(folder)))
    if os.path.lexists(place):
        raise ConfigError(f"{place!r} exists: name a folder that does not, for the copy")
    return place


async def _copy_folder(source: str, place: str) -> None:
    import asyncio
    import shutil

    try:
        await asyncio.to_thread(shutil.copytree, source, place, symlinks=True)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(place, ignore_errors=True)
        raise ConfigError(f"{source!r} cannot be copied to {place!r}: {error}") from error


async def _await(value: T | Awaitable[T]) -> T:
    return cast("T", await value if inspect.isawaitable(value) else value)
