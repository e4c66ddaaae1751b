"""Changes that tools and commands have made to files in a session: show them, undo and redo them, fork with the files.

The log has the states of each file before and after each change (see `perdure._tools.files.changes`), and a snapshot
backend has the contents. A file is restored only if it is as the change left it, so that no later work is lost; with
`overwrite`, what was there is stored first. Background agents have sessions, and so histories, of their own.

An undo is logged before it touches the first file. One that was cut off is finished by the next `undo`, and taken back
by a `redo`: neither touches another run.
"""

# ruff: noqa: PTH100, PTH104, PTH111, PTH118, PTH119, PTH120 - a Path would cost every start milliseconds
import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.values import checks
from perdure._core.values.clock import new_id
from perdure._core.values.error import ConfigError, SessionBusy
from perdure._core.values.event import Entry, ValueKept
from perdure._io.files.confined_folder import FileRefused
from perdure._io.files.folder_look import (
    FolderLook,
    SeenChange,
    complete_look,
    decode_look,
    is_trusted_by_programs,
    list_changes,
    look_at_folder,
)
from perdure._io.files.jail import FileChanged
from perdure._io.files.origin import record_copy
from perdure._io.files.snapshots import NOTHING, FileRestorer, FileState, FolderNotEmpty, has_changed_mode
from perdure._runtime.session.session import Session
from perdure._runtime.subagents.jobs import list_background_jobs

from .changes import (
    FileChangeLog,
    LoggedChange,
    LoggedCommand,
    LoggedRestore,
    read_change_log,
)
from .command_changes import list_own_paths
from .records import (
    CHANGES_NAME,
    FILE_PREFIX,
    NO_FILE,
    RESTORE_NAME,
    FileAccessRecord,
    FileSnapshotBackend,
    FolderMoved,
    ForkBegun,
    RestoreBegun,
    RestoredPath,
    RestoreEnded,
    RestoreItem,
    RestoreWay,
    parse_record,
    split_changes,
    split_intent,
)

T = TypeVar("T")

RestoreStatus: TypeAlias = Literal["restored", "unchanged", "conflict", "refused"]
"""Result for one file. `unchanged`: it was so already. `conflict`: it was changed by others, and is left as it is."""
_Keep: TypeAlias = Callable[[Sequence[tuple[str, Any]]], Awaitable[None]]
_MOST_UNLOGGED: Final = 16
"""Paths that are restored until the log says so: each entry is synced, and what is on the disk tells the rest."""
_CHANGED: Final = "it has been changed since by others"
_UNCERTAIN: Final = "its call was cut off: whether it, or others, have changed this file is not known"
_FINISHED: Final = "an {way} of it that was cut off is finished"
_TAKEN_BACK: Final = "an {way} of it that was cut off is taken back"


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
    """Digest of the content before; empty if there was no file. Of a link, the content is its target."""
    after: str
    """Digest of the content after; empty if there is no file any more."""
    mode: int | None = None
    """Permission bits before."""
    undone: bool = False
    """True if it was undone, and not redone since."""
    mode_after: int | None = None
    """Permission bits after, if they are known."""
    kind: Literal["file", "link", "folder"] = "file"
    """What is at the path after the change; if nothing, what was there before."""
    command: str = ""
    """The command line that made it; empty if it was a tool for files."""
    certain: bool = True
    """False if the call was cut off, so that it is not known whether it has made the change, or others have."""


class UntrackedCommand(Struct, frozen=True, kw_only=True):
    """A shell command that a tool call has run, and that may have changed files in a way that cannot be undone."""

    seq: int
    """Number of the entry in the log."""
    run_id: str
    call_id: str
    line: str
    """The command line."""
    root: str
    """The working folder of the command."""
    not_recorded: tuple[str, ...] = ()
    """What cannot be undone, and why."""


class RestoredFile(Struct, frozen=True, kw_only=True):
    """Result of an undo or redo for one file: its path, status, and the digest of the content it should have."""

    path: str
    status: RestoreStatus
    digest: str
    """Digest of the content that it should have; empty if there should be no file."""
    reason: str = ""
    run_id: str = ""
    """The run that was undone or redone."""


class InterruptedRestore(Struct, frozen=True, kw_only=True):
    """An undo or redo that was cut off: the same again finishes it, the opposite takes it back."""

    way: Literal["undo", "redo"]
    run_id: str
    restored: tuple[str, ...]
    """The paths that it has restored."""
    missing: tuple[str, ...]
    """The paths that it has not."""


class _PlannedFile(Struct):
    """The change of one path that an undo or redo is about to make."""

    path: str
    expected: FileState
    """The state in which it is touched without `overwrite`."""
    wanted: FileState
    back: FileState
    """What the opposite would restore."""
    is_certain: bool = True
    is_of_tool: bool = False
    """True if a tool for files has changed it, so that the model has read what is restored."""


class FileHistory:
    """The changes that a session has made to files, with operations to undo and redo them.

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
            checks.raise_config_error("FileHistory", "session", session, "give a session of an agent")
        if not callable(getattr(snapshots, "load", None)):
            checks.raise_config_error("FileHistory", "snapshots", snapshots, "give SnapshotFolder(folder)")
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
        """Return the changes of the session, or of one run, in order: those that were made.

        For a call that was cut off, what is on the disk says whether it has made its change.
        """
        log = await self._read_log()
        return [_to_file_change(each) for each in log.changes if run_id in {"", each.run_id}]

    async def commands(self, run_id: str = "") -> list[UntrackedCommand]:
        """Return the commands of the session, or of one run, of which something cannot be undone, in order.

        What it is, and why, is in `not_recorded`: a command in the background, a folder or file that is too large, a
        file that git ignores and that is gone. Commands that are known to only read change nothing.
        """
        log = await self._read_log()
        found: list[UntrackedCommand] = []
        for each in log.commands:
            reasons = tuple([reason for part in each.parts for reason in part.not_recorded])
            if not each.record.look:
                reasons = (each.record.not_recorded or "it was not recorded",)
            if reasons and run_id in {"", each.run_id}:
                found.append(
                    UntrackedCommand(
                        seq=each.seq,
                        run_id=each.run_id,
                        call_id=each.record.call_id,
                        line=each.record.line,
                        root=each.record.root,
                        not_recorded=reasons,
                    )
                )
        return found

    async def find_interrupted(self) -> InterruptedRestore | None:
        """Return the undo or redo that was cut off before its end; `None` if there is none."""
        found = (await self._read_log()).interrupted
        if found is None:
            return None
        missing = tuple([path for path in found.items if path not in found.done])
        restored = tuple([path for path in found.items if path in found.done])
        return InterruptedRestore(way=found.way, run_id=found.run_id, restored=restored, missing=missing)

    async def undo(self, run_id: str = "", *, dry_run: bool = False, overwrite: bool = False) -> list[RestoredFile]:
        """Give the files that a run has changed the content from before it; by default the last run that is not undone.

        A run of which some files could not be restored is not undone: the next `undo` is about it again. What cannot be
        undone of commands is in `commands`. Raises `SessionBusy` while the session is being driven.

        Args:
            run_id: The run.
            dry_run: True to change nothing, and only return what would be done.
            overwrite: True to restore also files that others have changed since. What was there is stored, so that
                `redo` brings it back.
        """
        return await self._restore("undo", run_id, dry_run=dry_run, overwrite=overwrite)

    async def redo(self, run_id: str = "", *, dry_run: bool = False, overwrite: bool = False) -> list[RestoredFile]:
        """Put back what an undo has replaced; by default the last one that is not redone.

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
            folder: Where to put the copy; it must not exist, nor be inside of the working folder.
            at: The number of the last entry of the fork; by default all.
            session_id: The id of the fork.

        Raises `ConfigError` if a content is missing; then there is neither a fork nor a copy. Files that only others
        than the session have changed are copied as they are. A fork that was cut off is completed or removed by the
        next `fork`, `undo` or `redo`. Raises `SessionBusy` while the session is being driven.
        """
        place = _find_free_place(folder)
        if not (await self._read_log()).changes and self._workdir is None:
            self._find_root(())
        async with self._hold() as (entries, log, keep):
            root = self._find_root(log.changes)
            _check_is_outside(place, root)
            at = (entries[-1].seq if entries else 0) if at is None else at
            beside = os.path.join(os.path.dirname(place), f".{os.path.basename(place)}.perdure-{new_id()[-8:]}")
            intent = ForkBegun(new_id(), self.session_id, session_id or new_id(), place, beside)
            wanted = _list_states_at(log, at)
            contents = {path: await self._load_state(state) for path, state in wanted.items()}
            await keep([_encode(intent)])
            try:
                await asyncio.to_thread(record_copy, root, place)
                await asyncio.to_thread(_copy_folder, root, beside, place)
                await asyncio.to_thread(_put_states, beside, wanted, contents)
                fork = await self._session.fork(intent.session_id, at=at)
                await fork.keep(*_encode(FolderMoved(root, place)))
                os.rename(beside, place)
            except BaseException:
                await _finish_fork(self._session, intent)
                await keep([_encode(RestoreEnded(intent.restore_id))])
                raise
            await keep([_encode(RestoreEnded(intent.restore_id))])
            return fork

    # -- the log -------------------------------------------------------------------------------------------------------

    async def _read_log(self) -> FileChangeLog:
        return await self._fold(await self._session.store.read(self.session_id))

    async def _fold(self, entries: Sequence[Entry]) -> FileChangeLog:
        reader = _StateReader(self._workdir)
        try:
            return await read_change_log(self.session_id, entries, reader.read, self._compare_looks)
        finally:
            reader.close()

    @asynccontextmanager
    async def _hold(self) -> AsyncGenerator[tuple[list[Entry], FileChangeLog, _Keep]]:
        """Let nobody else use the session meanwhile; what a crash has left open is settled first, and logged."""
        try:
            async with self._session.hold_log() as (entries, keep):
                log = await self._fold(entries)
                for fork in log.forks:
                    await _finish_fork(self._session, fork)
                    await keep([_encode(RestoreEnded(fork.restore_id))])
                await self._log_cut_off_commands(log, keep)
                yield entries, log, keep
        except SessionBusy as error:
            raise SessionBusy(f"its files cannot be restored now: {error}") from error

    async def _log_cut_off_commands(self, log: FileChangeLog, keep: _Keep) -> None:
        for command in log.commands:
            if not command.is_cut_off:
                continue
            own = [each for each in log.changes if each.command and each.seq == command.seq]
            look = command.record.look
            stored = {each.path for each in own if await self._is_stored(each.before, look, each.path)}
            seen = tuple([SeenChange(each.path, each.before, each.after) for each in own if each.path in stored])
            lost = tuple([f"{each.path} (its content is gone)" for each in own if each.path not in stored])
            parts = split_changes(command.record.call_id, command.run_id, seen, lost, is_certain=False)
            await keep([(CHANGES_NAME, msgspec.to_builtins(each)) for each in parts])

    async def _is_stored(self, state: FileState, look: str, path: str) -> bool:
        """Store a content under its own digest, from the pack that a look names; return False if it is gone."""
        if not state.digest:
            return True
        try:
            entry = (await self._load_look(look)).entries[path]
            pack = await self.load(entry.pack)
            await _await(self._snapshots.save(pack[entry.offset : entry.offset + entry.size]))
            await self.load(state.digest)
        except (ConfigError, KeyError):
            return False
        return True

    async def _load_look(self, digest: str) -> FolderLook:
        stored = decode_look(await self.load(digest))
        base = await self._load_look(stored.base) if stored.base else None
        return complete_look(stored, base)

    async def _compare_looks(self, command: LoggedCommand, later: LoggedCommand | None) -> Sequence[SeenChange]:
        """Return what differs between the looks before two commands, or between one and now; nothing if it is gone.

        Without what the command was kept from changing.
        """
        try:
            before = await self._load_look(command.record.look)
            if later is not None:
                after = await self._load_look(later.record.look)
                return _list_changes_of(command, before, after)
        except ConfigError:
            return ()
        root = self._workdir or command.record.root
        own = list_own_paths(self._session.store, self.session_id, self._snapshots)
        after = await asyncio.to_thread(look_at_folder, root, before, own=own)
        return () if after.problem else _list_changes_of(command, before, after)

    # -- restoring -----------------------------------------------------------------------------------------------------

    async def _restore(self, way: RestoreWay, run_id: str, *, dry_run: bool, overwrite: bool) -> list[RestoredFile]:
        if dry_run:
            log = await self._read_log()
            return await self._restore_chosen(way, run_id, log, (), None, overwrite=overwrite)
        if await self._session.info() is None:
            return []
        async with self._hold() as (entries, log, keep):
            if log.interrupted is not None:
                await keep([_encode(_build_end(log.interrupted))])
            return await self._restore_chosen(way, run_id, log, entries, keep, overwrite=overwrite)

    async def _restore_chosen(
        self,
        way: RestoreWay,
        run_id: str,
        log: FileChangeLog,
        entries: Sequence[Entry],
        keep: _Keep | None,
        *,
        overwrite: bool,
    ) -> list[RestoredFile]:
        cut_off = log.interrupted
        if cut_off is not None and run_id in {"", cut_off.run_id}:
            return await self._restore_cut_off(way, cut_off, log, entries, keep, overwrite=overwrite)
        run_id = run_id or _choose_run(log, way)
        return await self._restore_run(way, run_id, log, entries, keep, overwrite=overwrite)

    async def _restore_cut_off(
        self,
        way: RestoreWay,
        cut_off: LoggedRestore,
        log: FileChangeLog,
        entries: Sequence[Entry],
        keep: _Keep | None,
        *,
        overwrite: bool,
    ) -> list[RestoredFile]:
        """Finish what was cut off, or take it back; no other run is touched, even if nothing is left to do."""
        reason = (_FINISHED if way == cut_off.way else _TAKEN_BACK).format(way=cut_off.way)
        files = await self._restore_run(way, cut_off.run_id, log, entries, keep, overwrite=overwrite)
        found = {each.path: each if each.reason else replace(each, reason=reason) for each in files}
        for path, item in cut_off.items.items():
            wanted = item.wanted if way == cut_off.way else item.now
            left = RestoredFile(
                path=path, status="unchanged", digest=wanted.digest, reason=reason, run_id=cut_off.run_id
            )
            found.setdefault(path, left)
        return [*found.values()]

    async def _restore_run(
        self,
        way: RestoreWay,
        run_id: str,
        log: FileChangeLog,
        entries: Sequence[Entry],
        keep: _Keep | None,
        *,
        overwrite: bool,
    ) -> list[RestoredFile]:
        plan = _plan_undo(log, run_id) if way == "undo" else _plan_redo(log, run_id)
        if not plan:
            return []
        root = self._find_root([each for each in log.changes if each.run_id == run_id])
        restorer = FileRestorer(root)
        try:
            restoring = _Restoring(self, restorer, way, run_id, overwrite=overwrite)
            await restoring.examine(plan)
            if keep is not None:
                await restoring.carry_out(keep, _list_known_files(entries))
            return [replace(restoring.results[each.path], run_id=run_id) for each in plan]
        finally:
            restorer.close()

    async def _load_state(self, state: FileState) -> bytes:
        return await self.load(state.digest)

    async def save(self, data: bytes) -> None:
        """Store a content that is about to be replaced."""
        await _await(self._snapshots.save(data))

    def _find_root(self, changes: Sequence[LoggedChange]) -> str:
        """Return the folder of the changes. Raises `ConfigError` if it is another than the one that was named."""
        roots = {each.root for each in changes}
        if self._workdir is not None:
            return self._workdir
        if len(roots) != 1:
            raise ConfigError("the log names no single working folder: give FileHistory(…, workdir=…)")
        return roots.pop()


def _list_changes_of(command: LoggedCommand, before: FolderLook, after: FolderLook) -> list[SeenChange]:
    keeps = command.record.keeps_trusted
    return [each for each in list_changes(before, after) if not (keeps and is_trusted_by_programs(each.path))]


class _Restoring:
    """An undo or redo in progress."""

    def __init__(
        self, history: FileHistory, restorer: FileRestorer, way: RestoreWay, run_id: str, *, overwrite: bool
    ) -> None:
        self.results: dict[str, RestoredFile] = {}
        """By path."""
        self._history = history
        self._restorer = restorer
        self._way: RestoreWay = way
        self._run_id = run_id
        self._overwrite = overwrite
        self._items: list[tuple[RestoreItem, _PlannedFile, bytes]] = []
        """What is to be done, with the contents to be written."""

    async def examine(self, plan: Sequence[_PlannedFile]) -> None:
        """Look at each path, and find out what can be done."""
        for each in plan:
            try:
                status, reason = await self._examine_file(each)
            except ConfigError as error:
                status, reason = "refused", str(error)
            self._set_result(each, status, reason)

    async def _examine_file(self, file: _PlannedFile) -> tuple[RestoreStatus, str]:
        now, data = await asyncio.to_thread(self._restorer.read, file.path)
        with_mode = has_changed_mode(file.expected, file.wanted)
        if now.is_same(file.wanted, with_mode=with_mode):
            self._items.append((RestoreItem(file.path, now, now, file.back), file, b""))
            return "unchanged", ""
        if not self._overwrite:
            loses_nothing = now == NOTHING or (now.kind == "folder" and file.wanted == NOTHING)
            if not file.is_certain and not loses_nothing:
                return "conflict", _UNCERTAIN
            if file.is_certain and not now.is_same(file.expected, with_mode=with_mode):
                return "conflict", _CHANGED
        content = await self._history.load(file.wanted.digest)
        back = file.back if now.is_same(file.expected) else now
        if now.digest:
            await self._history.save(data)
        self._items.append((RestoreItem(file.path, now, file.wanted, back), file, content))
        return "restored", ""

    async def carry_out(self, keep: _Keep, known: set[str]) -> None:
        """Log what is to be done, do it, and log each file and the end."""
        if not self._items:
            return
        restore_id = new_id()
        items = tuple([item for item, _, _ in self._items])
        root = self._restorer.root
        await keep(
            [_encode(each) for each in split_intent(RestoreBegun(restore_id, self._way, self._run_id, root, items))]
        )
        self._items.sort(key=lambda each: _order_of_restoring(each[0].path, each[0].wanted))
        for at in range(0, len(self._items), _MOST_UNLOGGED):
            records: list[tuple[str, Any]] = []
            for item, file, content in self._items[at : at + _MOST_UNLOGGED]:
                if item.now == item.wanted or await self._put(item, file, content):
                    records.append(_encode(RestoredPath(restore_id, item.path)))
                    records += self._build_access(item, file, restore_id, known)
            if records:
                await keep(records)
        await asyncio.to_thread(self._restorer.close_folders)
        await keep([_encode(RestoreEnded(restore_id))])

    def _build_access(
        self, item: RestoreItem, file: _PlannedFile, restore_id: str, known: set[str]
    ) -> list[tuple[str, Any]]:
        """Return the record that tells the tools for files what the model has read: what is there again."""
        if not file.is_of_tool or item.path not in known:
            return []
        root, mode = self._restorer.root, item.wanted.mode
        access = FileAccessRecord(item.wanted.digest, item.now.digest, self._run_id, root, mode, self._way, restore_id)
        return [(FILE_PREFIX + item.path, access)]

    async def _put(self, item: RestoreItem, file: _PlannedFile, content: bytes) -> bool:
        try:
            await asyncio.to_thread(
                self._restorer.put, item.path, item.wanted, content, now=item.now, was=file.expected
            )
        except FolderNotEmpty as error:
            if item.wanted == NOTHING:
                self._set_result(file, "unchanged", str(error))
                return True  # the folder is as the others need it
            self._set_result(file, "refused", str(error))
        except FileChanged as error:
            self._set_result(file, "conflict", str(error))
        except ConfigError as error:
            self._set_result(file, "refused", str(error))
        else:
            return True
        return False

    def _set_result(self, file: _PlannedFile, status: RestoreStatus, reason: str) -> None:
        self.results[file.path] = RestoredFile(
            path=file.path, status=status, digest=file.wanted.digest, reason=reason, run_id=self._run_id
        )


class _StateReader:
    """Reads the states of paths now, in the folders that the log names."""

    def __init__(self, workdir: str | None) -> None:
        self._workdir = workdir
        self._restorers: dict[str, FileRestorer | None] = {}

    def read(self, root: str, path: str) -> FileState | None:
        """Return the state of a path; `None` if it cannot be read."""
        root = self._workdir or root
        try:
            if root not in self._restorers:
                self._restorers[root] = None
                self._restorers[root] = FileRestorer(root)
            restorer = self._restorers[root]
            return None if restorer is None else restorer.read(path)[0]
        except FileRefused:
            return None
        except ConfigError:
            return None

    def close(self) -> None:
        """Close the folders."""
        for each in self._restorers.values():
            if each is not None:
                each.close()


def _to_file_change(change: LoggedChange) -> FileChange:
    shown = change.before if change.after == NOTHING else change.after
    return FileChange(
        seq=change.seq,
        run_id=change.run_id,
        call_id=change.call_id,
        path=change.path,
        root=change.root,
        before=change.before.digest,
        after=change.after.digest,
        mode=change.before.mode,
        undone=change.is_undone,
        mode_after=change.after.mode,
        kind="file" if shown.kind == "none" else shown.kind,
        command=change.command,
        certain=change.outcome == "made",
    )


def _choose_run(log: FileChangeLog, way: RestoreWay) -> str:
    """Return the last run that is not undone, or the one that was undone last; empty if there is none.

    A run that has left all its files as they were before it, such as one that made a file and removed it, is passed
    over: there is nothing to undo in it.
    """
    if way == "undo":
        open_runs = dict.fromkeys([each.run_id for each in reversed(log.changes) if not each.is_undone])
        return next((run_id for run_id in open_runs if _plan_undo(log, run_id)), "")
    return next((run_id for run_id, _ in reversed(log.find_undone())), "")


def _plan_undo(log: FileChangeLog, run_id: str) -> list[_PlannedFile]:
    """Return what an undo of a run has to do: each path gets the state from before its first change."""
    plan: dict[str, _PlannedFile] = {}
    for each in log.changes:
        if each.run_id != run_id or each.is_undone:
            continue
        known = plan.get(each.path)
        if known is None:
            known = plan[each.path] = _PlannedFile(each.path, each.after, each.before, each.after)
        after = each.after if each.after.mode is not None else replace_mode(each.after, known.expected.mode)
        known.expected = known.back = after
        known.is_certain = each.outcome == "made"
        known.is_of_tool = not each.command
    return [
        each for each in plan.values() if not (each.is_certain and each.expected.is_same(each.wanted, with_mode=True))
    ]


def replace_mode(state: FileState, mode: int | None) -> FileState:
    """Return a state with other permission bits, if there is something at the path."""
    return state if state == NOTHING else replace(state, mode=mode)


def _plan_redo(log: FileChangeLog, run_id: str) -> list[_PlannedFile]:
    of_tools = {each.path for each in log.changes if each.run_id == run_id and not each.command}
    return [
        _PlannedFile(path, item.wanted, item.back, item.wanted, is_of_tool=path in of_tools)
        for (run, path), item in log.find_undone().items()
        if run == run_id
    ]


def _order_of_restoring(path: str, wanted: FileState) -> tuple[bool, int]:
    """Sort what is removed before what is put there, from inside to outside; then folders before what is in them."""
    depth = path.count("/")
    return (False, -depth) if wanted == NOTHING else (True, depth)


def _list_known_files(entries: Sequence[Entry]) -> set[str]:
    """Return the files that tools have read or changed in the session."""
    found: set[str] = set()
    for entry in entries:
        event = entry.event
        if (
            isinstance(event, ValueKept)
            and event.name.startswith(FILE_PREFIX)
            and parse_record(event.value) is not None
        ):
            found.add(event.name.removeprefix(FILE_PREFIX))
    return found


def _build_end(restore: LoggedRestore) -> RestoreEnded:
    return RestoreEnded(restore.restore_id, tuple(sorted(restore.done)))


def _encode(record: Struct) -> tuple[str, Any]:
    """Return the name and the value with which a record is stored."""
    return RESTORE_NAME, msgspec.to_builtins(record)


def _list_states_at(log: FileChangeLog, at: int) -> dict[str, FileState]:
    """Return the states that paths had at an entry, of those that have changed since; an undo is a change, too."""
    found = [(each.seq, each.path, each.before) for each in log.changes]
    found += [(each.seq, path, each.items[path].now) for each in log.restores for path in each.done]
    return {path: state for seq, path, state in sorted(found, key=lambda each: -each[0]) if seq > at}


def _put_states(root: str, wanted: dict[str, FileState], contents: dict[str, bytes]) -> None:
    """Give the paths of a copy their earlier states."""
    restorer = FileRestorer(root)
    try:
        for path, state in sorted(wanted.items(), key=lambda each: _order_of_restoring(*each)):
            now, _ = restorer.read(path)
            if not now.is_same(state, with_mode=True):
                try:
                    restorer.put(path, state, contents[path], now=now)
                except FolderNotEmpty:
                    if state != NOTHING:
                        raise
        restorer.close_folders()
    finally:
        restorer.close()


async def _finish_fork(session: Session[Any], fork: ForkBegun) -> None:
    """Complete a fork that was cut off if the session is there, else remove what there is of the copy."""
    is_forked = await session.store.info(fork.session_id) is not None
    await asyncio.to_thread(_finish_copy, fork, is_forked=is_forked)


def _finish_copy(fork: ForkBegun, *, is_forked: bool) -> None:
    import shutil

    if is_forked and os.path.lexists(fork.beside) and not os.path.lexists(fork.folder):
        os.rename(fork.beside, fork.folder)
    else:
        shutil.rmtree(fork.beside, ignore_errors=True)


def _find_free_place(folder: str | os.PathLike[str]) -> str:
    place: str = os.path.abspath(os.path.expanduser(os.fspath(folder)))
    if os.path.lexists(place):
        raise ConfigError(f"{place!r} exists: name a folder that does not, for the copy")
    return place


def _check_is_outside(place: str, root: str) -> None:
    """Raise `ConfigError` for a copy inside of the folder that is copied: it would be copied into itself again."""
    if os.path.commonpath([os.path.realpath(place), os.path.realpath(root)]) == os.path.realpath(root):
        raise ConfigError(f"{place!r} is in the working folder {root!r}: name a folder outside of it, for the copy")


def _copy_folder(source: str, beside: str, place: str) -> None:
    import shutil

    try:
        shutil.copytree(source, beside, symlinks=True)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise ConfigError(f"{source!r} cannot be copied to {place!r}: {error}") from error


async def _await(value: T | Awaitable[T]) -> T:
    return cast("T", await value if inspect.isawaitable(value) else value)
