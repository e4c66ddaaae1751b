"""`CommandChangeRecorder`: records what the commands of a shell change in the working folder, so that it can be undone.

It looks at the folder before and after each command that may write. The look before is stored and named in the log
first: if the process dies during the command, what it changed can still be found.
"""

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from perdure._core.log.store import Store, get_process_wide_session_key
from perdure._core.permission.targets.command import CommandTarget
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import ToolOutput
from perdure._core.tools.worker.threads import THREAD_POOL
from perdure._core.values.error import ConfigError
from perdure._io.files.folder_look import (
    FolderLook,
    LookLimits,
    SeenChange,
    build_stored_look,
    is_trusted_by_programs,
    list_changes,
    list_unrecorded,
    look_at_folder,
    take_content,
)

from .records import (
    CHANGES_NAME,
    COMMAND_NAME,
    IN_BACKGROUND,
    NO_SNAPSHOTS,
    FileChangingCommandRecord,
    FileSnapshotBackend,
    split_changes,
)

T = TypeVar("T")

_DESCRIPTION = (
    " The user can undo what a command changes in the working folder, except files that git ignores or that are very "
    "large, and except what runs in the background."
)
_MOST_NAMED = 20
"""Paths that cannot be undone which are named; of more, the number is."""


def list_own_paths(store: Store, session_id: str, snapshots: object) -> list[str]:
    """Return the paths that the runtime writes while a command runs: those of the store and of the snapshots.

    They may be in the working folder, and an undo must not touch them.
    """
    place = get_process_wide_session_key(store, session_id)[0]
    parts: tuple[object, ...] = cast("tuple[object, ...]", place)[1:] if isinstance(place, tuple) else ()
    named: list[object] = [*parts, getattr(snapshots, "folder", "")]
    return [each for each in named if isinstance(each, str) and each.startswith(os.sep)]


class RecordedCommand:
    """A command that is being recorded."""

    def __init__(self) -> None:
        self.not_recorded: tuple[str, ...] = ()
        """What the command has changed and cannot be undone, with the reasons; known once it has ended."""

    def add_note(self, output: ToolOutput) -> ToolOutput:
        """Return the output of the command, with a line about what cannot be undone, if there is anything."""
        if not self.not_recorded:
            return output
        note = f"[what it changed cannot be undone: {'; '.join(self.not_recorded)}]"
        return replace(output, content=f"{output.content}\n{note}")


class CommandChangeRecorder:
    """Records commands that may change files, and what they change in one working folder."""

    def __init__(
        self,
        root: str,
        snapshots: FileSnapshotBackend | None = None,
        limits: LookLimits | None = None,
        *,
        is_confined: bool = False,
    ) -> None:
        """Record commands that run in `root`; without `snapshots`, only their lines.

        In a sandbox (`is_confined`), a command changes nothing under a name that other programs trust, unless a person
        agrees. What changes there belongs to others: a command in the background may have put it there for a moment,
        and an undo would put it there for good.
        """
        self._is_confined = is_confined
        self._root = os.path.realpath(root)
        self._snapshots = snapshots
        self._limits = limits
        self._lock = threading.Lock()
        """Held during a look: sessions of several event loops may share the tools."""
        self._last: FolderLook | None = None
        self._base: FolderLook | None = None
        """The last look that was stored in full."""
        self._base_digest = ""

    @property
    def description(self) -> str:
        """The part of a tool description that says which changes of a command can be undone; empty if none can."""
        return _DESCRIPTION if self._snapshots is not None else ""

    @asynccontextmanager
    async def record(
        self, context: ToolContext[Any], command: CommandTarget, *, is_background: bool = False
    ) -> AsyncGenerator[RecordedCommand]:
        """Record a command that runs in this block, and what it changes, unless it only reads.

        Gives an object that tells afterwards what cannot be undone.
        """
        told = RecordedCommand()
        if command.reads_only:  # in the sandbox it can write nothing
            yield told
            return
        before, digest, problem = None, "", IN_BACKGROUND if is_background else NO_SNAPSHOTS
        if self._snapshots is not None and not is_background:
            before = await self._look(context)
            digest, problem = await self._store_look(context, before) if not before.problem else ("", before.problem)
        keeps = self._is_confined and not command.configures
        record = FileChangingCommandRecord(command.text, context.call_id, self._root, digest, problem, keeps)
        await context.keep(COMMAND_NAME, record)
        if self._snapshots is not None and problem:
            told.not_recorded = (problem,)
        try:
            yield told
        finally:
            if before is not None and digest:
                told.not_recorded = await self._record_changes(context, before, keeps_trusted=keeps)

    async def _record_changes(
        self, context: ToolContext[Any], before: FolderLook, *, keeps_trusted: bool
    ) -> tuple[str, ...]:
        """Log what differs from a look before a command; return what of it cannot be undone."""
        after = await self._look(context)
        changes: tuple[SeenChange, ...] = ()
        if after.problem:
            missed = [after.problem]
        else:
            changes, missed = await self._in_thread(context, self._compare, before, after, keeps_trusted)
        shown = _shorten(missed)
        for each in split_changes(context.call_id, context.run_id, changes, shown):
            await context.keep(CHANGES_NAME, msgspec.to_builtins(each))
        return shown

    async def _look(self, context: ToolContext[Any]) -> FolderLook:
        own = list_own_paths(context.run.log.store, context.session_id, self._snapshots)
        return await self._in_thread(context, self._look_now, own)

    def _look_now(self, save: Callable[[bytes], str], _: Callable[[str], bytes], own: Collection[str]) -> FolderLook:
        with self._lock:
            look = look_at_folder(self._root, self._last, save=save, limits=self._limits, own=own)
            if not look.problem:
                self._last = look
            return look

    async def _store_look(self, context: ToolContext[Any], look: FolderLook) -> tuple[str, str]:
        """Store a look; return its digest, or an empty one and the reason why it cannot be stored."""

        def store(save: Callable[[bytes], str], _: Callable[[str], bytes]) -> str:
            with self._lock:
                stored = build_stored_look(look, self._base, self._base_digest)
                digest = save(msgspec.msgpack.encode(stored))
                if not stored.base:
                    self._base, self._base_digest = look, digest
                return digest

        try:
            return await self._in_thread(context, store), ""
        except ConfigError as error:
            return "", str(error)

    def _compare(
        self,
        save: Callable[[bytes], str],
        load: Callable[[str], bytes],
        before: FolderLook,
        after: FolderLook,
        keeps_trusted: bool,  # noqa: FBT001 - it is called by a thread, which has no names
    ) -> tuple[tuple[SeenChange, ...], list[str]]:
        """Return what differs between two looks, with the contents stored, and what cannot be undone."""
        missed = list_unrecorded(before, after)
        packs: dict[str, bytes] = {}
        kept: list[SeenChange] = []
        for change in list_changes(before, after):
            if keeps_trusted and is_trusted_by_programs(change.path):
                missed.append(f"{change.path} (other programs trust its name)")
                continue
            try:
                for look in (before, after):
                    _save_content(look, change.path, packs, save, load)
            except ConfigError as error:
                missed.append(f"{change.path} ({error})")
            else:
                kept.append(change)
        return tuple(kept), missed

    async def _in_thread(self, context: ToolContext[Any], work: Callable[..., T], *more: Any) -> T:
        """Call a function on a thread, with functions that save and load snapshots."""
        backend, loop = cast("FileSnapshotBackend", self._snapshots), asyncio.get_running_loop()

        def wait(value: Any) -> Any:
            return (
                asyncio.run_coroutine_threadsafe(_wait(value), loop).result() if inspect.isawaitable(value) else value
            )

        def save(data: bytes) -> str:
            return cast("str", wait(backend.save(data)))

        def load(digest: str) -> bytes:
            return cast("bytes", wait(backend.load(digest)))

        return cast("T", await THREAD_POOL.run(work, (save, load, *more), {}, session_id=context.full_session_id))


def _save_content(
    look: FolderLook,
    path: str,
    packs: dict[str, bytes],
    save: Callable[[bytes], str],
    load: Callable[[str], bytes],
) -> None:
    """Store what a look has seen at a path under its own digest, for an undo."""
    entry = look.entries.get(path)
    if entry is None or not entry.pack:
        return
    if entry.pack not in packs:
        packs[entry.pack] = load(entry.pack)
    save(take_content(packs[entry.pack], entry))


def _shorten(paths: list[str]) -> tuple[str, ...]:
    if len(paths) <= _MOST_NAMED:
        return tuple(paths)
    return (*paths[:_MOST_NAMED], f"and {len(paths) - _MOST_NAMED:,} more")


async def _wait(value: Awaitable[Any]) -> Any:
    return await value
