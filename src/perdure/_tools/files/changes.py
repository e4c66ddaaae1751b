"""Fold the log of a session into the changes of its files: which were made, and which are undone.

A change is logged before it is made, so an entry alone does not say that there was one. It is settled as calls are: by
the result of its call, else by what was there later, which a later entry tells, or the disk does. It was made, it was
not made, or it is not known; what was not made is left out.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import takewhile

from msgspec import Struct

from perdure._core.values.event import Entry, ToolFinished, ValueKept
from perdure._core.values.message import Status
from perdure._io.files.folder_look import SeenChange
from perdure._io.files.snapshots import FileState, build_file_state

from .records import (
    CHANGES_NAME,
    COMMAND_NAME,
    FILE_PREFIX,
    RESTORE_NAME,
    CommandChangesRecord,
    FileAccessRecord,
    FileChangingCommandRecord,
    FolderMoved,
    ForkBegun,
    RestoreBegun,
    RestoredPath,
    RestoreEnded,
    RestoreItem,
    RestoreWay,
    parse_changes_record,
    parse_command_record,
    parse_record,
    parse_restore_record,
)

_NEVER_MADE = frozenset({Status.DENIED, Status.CANCELLED_BEFORE_START})


class LoggedChange(Struct):
    """A change of a path that the log names."""

    seq: int
    run_id: str
    call_id: str
    path: str
    root: str
    before: FileState
    after: FileState
    status: Status | None = None
    """How its call has ended, if it has."""
    command: str = ""
    """The command line that made it; empty for a tool of files."""
    outcome: str = ""
    """`made`, `not made` or `unknown`; empty while it is not settled."""
    is_undone: bool = False


class LoggedCommand(Struct):
    """A command that may have changed files."""

    seq: int
    run_id: str
    record: FileChangingCommandRecord
    parts: list[CommandChangesRecord]
    """What it has changed, as far as it is logged."""
    changes_seq: int = 0
    """Number of the entry that completes them; 0 if there is none."""

    @property
    def is_cut_off(self) -> bool:
        """True if it was begun with a look at the folder, and none is logged after it."""
        return bool(self.record.look) and not self.changes_seq


class LoggedRestore(Struct):
    """An undo or redo."""

    seq: int
    restore_id: str
    way: RestoreWay
    run_id: str
    root: str
    items: dict[str, RestoreItem]
    done: set[str]
    """Paths that are restored."""
    is_ended: bool = False


class FileChangeLog(Struct):
    """The changes of files in the log of a session."""

    changes: list[LoggedChange]
    """In order, without those that were not made."""
    commands: list[LoggedCommand]
    restores: list[LoggedRestore]
    forks: list[ForkBegun]
    """Forks with files that have not ended."""

    @property
    def interrupted(self) -> LoggedRestore | None:
        """The last undo or redo, if it was cut off and no run has changed files since."""
        last = self.restores[-1] if self.restores else None
        if last is None or last.is_ended or any(each.seq > last.seq for each in self.changes):
            return None
        return last

    def find_undone(self) -> dict[tuple[str, str], RestoreItem]:
        """Return the paths that are undone, by run, each as it was undone, in the order in which they were."""
        found: dict[tuple[str, str], RestoreItem] = {}
        for restore in self.restores:
            for path in restore.done:
                key = (restore.run_id, path)
                found.pop(key, None)
                if restore.way == "undo":
                    found[key] = restore.items[path]
        undone = {(each.run_id, each.path) for each in self.changes if each.is_undone}
        return {key: item for key, item in found.items() if key in undone}


ReadState = Callable[[str, str], FileState | None]
"""Function that reads the state of a path in a root now; `None` if it cannot be read."""
CompareLooks = Callable[[LoggedCommand, LoggedCommand | None], Awaitable[Sequence[SeenChange]]]
"""Function that returns what differs between the looks before two commands; for `None`, between a look and now."""


async def read_change_log(
    session_id: str, entries: Iterable[Entry], read_state: ReadState, compare: CompareLooks
) -> FileChangeLog:
    """Fold the entries of a log; what they leave open is looked up on the disk."""
    folding = _Folding(session_id)
    for entry in entries:
        folding.add(entry)
    for command in folding.commands:
        if command.is_cut_off:
            await _add_cut_off_changes(folding, command, compare)
    folding.changes.sort(key=lambda each: each.seq)
    settling = _Settling(folding, read_state)
    settling.settle_changes()
    settling.settle_restores()
    changes = [each for each in folding.changes if each.outcome != "not made"]
    _mark_undone(changes, folding.restores)
    return FileChangeLog(changes, folding.commands, folding.restores, [*folding.forks.values()])


class _Folding:
    """The fold of log entries into changes of files, one entry after another."""

    def __init__(self, session_id: str) -> None:
        self.changes: list[LoggedChange] = []
        self.commands: list[LoggedCommand] = []
        self.restores: list[LoggedRestore] = []
        self.forks: dict[str, ForkBegun] = {}
        self._session_id = session_id
        self._open: dict[tuple[str, str], list[LoggedChange]] = {}
        """Changes whose calls have not ended, by run and call."""
        self._by_tools: list[LoggedChange] = []
        """The changes that tools for files have made."""
        self._intents: dict[str, list[RestoreItem]] = {}

    def add(self, entry: Entry) -> None:
        event = entry.event
        if isinstance(event, ToolFinished):
            for change in self._open.pop((event.run_id, event.call_id), ()):
                change.status = event.result.status
        elif not isinstance(event, ValueKept):
            return
        elif event.name.startswith(FILE_PREFIX):
            if (access := parse_record(event.value)) is not None and access.before is not None:
                self._add_access(entry.seq, event, access)
        elif event.name == COMMAND_NAME:
            if (command := parse_command_record(event.value)) is not None:
                self.commands.append(LoggedCommand(entry.seq, event.run_id, command, []))
        elif event.name == CHANGES_NAME:
            if (part := parse_changes_record(event.value)) is not None:
                self._add_command_changes(entry.seq, part)
        elif event.name == RESTORE_NAME:
            self._add_restore(entry.seq, event)

    def _add_access(self, seq: int, event: ValueKept, access: FileAccessRecord) -> None:
        path = event.name.removeprefix(FILE_PREFIX)
        before, after = build_file_state(access.before or "", access.mode), build_file_state(access.digest)
        if access.restored and not access.restore_id:  # as versions up to 0.4 have logged an undo, without its intent
            way: RestoreWay = "undo" if access.restored == "undo" else "redo"
            item = RestoreItem(
                path, build_file_state(access.before or ""), after, build_file_state(access.before or "")
            )
            self.restores.append(
                LoggedRestore(seq, "", way, access.call_id, access.root, {path: item}, {path}, is_ended=True)
            )
        elif not access.restored:
            self._add_change(LoggedChange(seq, event.run_id, access.call_id, path, access.root, before, after))

    def _add_change(self, change: LoggedChange) -> None:
        """Add a change; one that a call has logged twice, because its process died in between, is one."""
        calls = self._open.setdefault((change.run_id, change.call_id), [])
        for known in calls:
            if (known.path, known.before, known.after) == (change.path, change.before, change.after):
                self.changes.remove(known)
                self._by_tools.remove(known)
                calls.remove(known)
                break
        calls.append(change)
        self._by_tools.append(change)
        self.changes.append(change)

    def _add_command_changes(self, seq: int, part: CommandChangesRecord) -> None:
        command = next(
            (
                each
                for each in reversed(self.commands)
                if (each.run_id, each.record.call_id) == (part.run_id, part.call_id)
            ),
            None,
        )
        if command is None or command.changes_seq:
            return
        command.parts.append(part)
        if part.is_last:
            command.changes_seq = seq
            self._add_seen(
                command, [each for one in command.parts for each in one.changes], seq, is_certain=part.is_certain
            )

    def _add_seen(self, command: LoggedCommand, seen: Iterable[SeenChange], seq: int, *, is_certain: bool) -> None:
        meanwhile = takewhile(lambda each: each.seq > command.seq, reversed(self._by_tools))
        own = {(each.path, each.before.digest, each.after.digest) for each in meanwhile}
        for each in seen:
            if (each.path, each.before.digest, each.after.digest) not in own:  # else a tool made it meanwhile
                outcome = "made" if is_certain else "unknown"
                self.changes.append(
                    LoggedChange(
                        seq,
                        command.run_id,
                        command.record.call_id,
                        each.path,
                        command.record.root,
                        each.before,
                        each.after,
                        command=command.record.line,
                        outcome=outcome,
                    )
                )

    def add_cut_off(self, command: LoggedCommand, seen: Iterable[SeenChange]) -> None:
        """Add what a command has changed that was cut off; others may have made these changes."""
        self._add_seen(command, seen, command.seq, is_certain=False)

    def _add_restore(self, seq: int, event: ValueKept) -> None:
        record = parse_restore_record(event.value)
        restore_id = "" if record is None or isinstance(record, FolderMoved) else record.restore_id
        known = next((each for each in self.restores if restore_id and each.restore_id == restore_id), None)
        match record:
            case RestoreBegun():
                items = self._intents.setdefault(record.restore_id, [])
                items += record.items
                if record.is_last and known is None:
                    self.restores.append(
                        LoggedRestore(
                            seq,
                            record.restore_id,
                            record.way,
                            record.run_id,
                            record.root,
                            {each.path: each for each in items},
                            set(),
                        )
                    )
            case RestoredPath():
                if known is not None and record.path in known.items:
                    known.done.add(record.path)
            case RestoreEnded():
                self.forks.pop(record.restore_id, None)
                if known is not None:
                    known.done |= known.items.keys() & {*record.restored}
                    known.is_ended = True
            case ForkBegun():
                if record.source_id == self._session_id:
                    self.forks[record.restore_id] = record
            case FolderMoved():
                self._move(record)
            case None:
                pass

    def _move(self, record: FolderMoved) -> None:
        for change in self.changes:
            change.root = record.folder if change.root == record.root else change.root
        for restore in self.restores:
            restore.root = record.folder if restore.root == record.root else restore.root
            restore.is_ended = True  # in the folder that this session was forked from
        self.commands = [each for each in self.commands if not each.is_cut_off]


async def _add_cut_off_changes(folding: _Folding, command: LoggedCommand, compare: CompareLooks) -> None:
    later = [
        each
        for each in folding.commands
        if each.seq > command.seq and each.record.look and each.record.root == command.record.root
    ]
    seen = [*await compare(command, later[0] if later else None)]
    until = later[0].seq if later else 0
    known: dict[str, FileState] = {}
    for change in folding.changes:  # what another change has found says what the command had left
        if change.seq > command.seq and (not until or change.seq < until) and change.root == command.record.root:
            known.setdefault(change.path, change.before)
    for restore in folding.restores:
        if restore.seq > command.seq and (not until or restore.seq < until):
            for path, item in restore.items.items():
                known.setdefault(path, item.now)
    settled = [SeenChange(each.path, each.before, known.get(each.path, each.after)) for each in seen]
    folding.add_cut_off(command, [each for each in settled if not each.before.is_same(each.after, with_mode=True)])


class _Settling:
    """Finds out which changes were made, and which paths were restored, where no entry says so."""

    def __init__(self, folding: _Folding, read_state: ReadState) -> None:
        self._changes = folding.changes
        self._restores = folding.restores
        self._read_state = read_state

    def settle_changes(self) -> None:
        for change in self._changes:
            if change.outcome:
                continue
            if change.status is Status.OK:
                change.outcome = "made"
            elif change.status in _NEVER_MADE:
                change.outcome = "not made"
            else:
                change.outcome = self._look_up(change)

    def settle_restores(self) -> None:
        for restore in self._restores:
            if restore.is_ended:
                continue
            for path, item in restore.items.items():
                if path not in restore.done and self._is_restored(restore, item):
                    restore.done.add(path)

    def _is_restored(self, restore: LoggedRestore, item: RestoreItem) -> bool:
        if item.now.is_same(item.wanted, with_mode=True):
            return True  # it was so already
        state = self._find_state_after(restore.seq, item.path, restore.root)
        return state is not None and state.is_same(item.wanted, with_mode=True)

    def _look_up(self, change: LoggedChange) -> str:
        state = self._find_state_after(change.seq, change.path, change.root)
        if state is not None and state.is_same(change.after):
            return "made"
        if state is not None and state.is_same(change.before):
            return "not made"
        return "not made" if change.status is Status.ERROR else "unknown"

    def _find_state_after(self, seq: int, path: str, root: str) -> FileState | None:
        """Return what was at a path after an entry: what the next change or undo has found there, else the disk."""
        found = [(each.seq, each.before) for each in self._changes if each.seq > seq and each.path == path]
        found += [(each.seq, each.items[path].now) for each in self._restores if each.seq > seq and path in each.items]
        if found:
            return min(found, key=lambda each: each[0])[1]
        return self._read_state(root, path)


def _mark_undone(changes: Sequence[LoggedChange], restores: Sequence[LoggedRestore]) -> None:
    for restore in restores:
        for change in changes:
            if change.run_id == restore.run_id and change.seq < restore.seq and change.path in restore.done:
                change.is_undone = restore.way == "undo"
