"""A disk that loses power: what it holds for certain, and what is only on its way there. For `power.py` and `calls.py`.

The files themselves are real, so that locks and shared memory work as ever; this keeps the books beside them. A write
is on its way until its file is synced, and a name until its folder is. When power is cut, whatever is on its way has
come through, or not, or in part: independently of one another, which is all that a change of their order amounts to.
One thing every file system with a journal promises beyond that: a file that is being renamed keeps its old name or has
its new one.
"""

import threading
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeAlias

SECTOR = 512
"""What a disk writes at once, at least."""

Images: TypeAlias = dict[str, bytes]
"""The content of each file, by its name below the folder."""


class Broken(Exception):
    """An operation fails: with an error of the disk, or because it is full."""

    def __init__(self, kind: str, *, full: bool = False) -> None:
        super().__init__(kind)
        self.kind = kind
        self.full = full


class Write(NamedTuple):
    """Bytes that are on their way."""

    offset: int
    data: bytes


class Resize(NamedTuple):
    """A new length that is on its way."""

    size: int


class File:
    """One file, whatever it is called."""

    def __init__(self, content: bytes = b"") -> None:
        self.seen = bytearray(content)
        """What a reader finds."""
        self.sure = bytearray(content)
        """What the disk holds."""
        self.pending: list[Write | Resize] = []
        """What is on its way from the one to the other, in order."""

    def change(self, change: Write | Resize) -> None:
        """Write or cut off, without a sync."""
        apply(self.seen, change)
        self.pending.append(change)

    def sync(self) -> None:
        """Everything that is on its way arrives."""
        for change in self.pending:
            apply(self.sure, change)
        self.pending.clear()

    def fail_to_sync(self, chance: Random) -> None:
        """Some of it arrives. The rest never will, but for the system it is done, and it does not say so again."""
        self.sure = self.after_cut(chance, keep=0.3)
        self.pending.clear()

    def after_cut(self, chance: Random, keep: float) -> bytearray:
        """What is there when the power comes back."""
        content = bytearray(self.sure)
        for change in self.pending:
            if chance.random() < keep:
                apply(content, change)
            elif isinstance(change, Write) and chance.random() < 0.5:
                tear(content, change, chance)
        return content


def apply(content: bytearray, change: Write | Resize) -> None:
    """Make a change; a gap in front of it is full of zeros."""
    end = change.size if isinstance(change, Resize) else change.offset
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if isinstance(change, Resize):
        del content[end:]
    else:
        content[end : end + len(change.data)] = change.data


def tear(content: bytearray, write: Write, chance: Random) -> None:
    """Let a part of a write come through, sector by sector, or write rubbish in its place."""
    kind = chance.choice(("prefix", "sectors", "zeros", "rubbish"))
    if kind == "prefix":
        count = chance.randint(0, len(write.data))
        room = min(len(write.data), count + -(write.offset + count) % SECTOR) - count
        apply(content, Write(write.offset, write.data[:count]))
        apply(content, Write(write.offset + count, bytes(room)))  # a file ends where a sector does
    elif kind == "zeros":
        apply(content, Write(write.offset, bytes(len(write.data))))
    elif kind == "rubbish":  # but no file system shows what others left in a sector that is new to a file
        old = max(0, min(len(write.data), len(content) - write.offset))
        apply(content, Write(write.offset, chance.randbytes(old) + bytes(len(write.data) - old)))
    else:
        for part in sectors(write):
            if chance.random() < 0.5:
                apply(content, part)


def sectors(write: Write) -> list[Write]:
    """A write in the pieces in which the disk makes it."""
    offset, data = write
    end = offset + len(data)
    edges = [offset, *range(offset - offset % SECTOR + SECTOR, end, SECTOR), end]
    return [Write(start, data[start - offset : stop - offset]) for start, stop in pairwise(edges)]


class Disk:
    """The files below one folder. Only what it is told about is on its books: `check` holds them against the folder."""

    def __init__(self, folder: Path, images: Mapping[str, bytes] | None = None) -> None:
        self.folder = folder
        self.turn = threading.RLock()
        """Held during each operation."""
        self.operations = 0
        """How many there have been."""
        self.before_each: Callable[[str], None] = lambda _kind: None
        """Called with the kind of each operation before it is done; what it raises is what becomes of it."""
        self._names = {name: File(content) for name, content in (images or {}).items()}
        self._sure_names = dict(self._names)
        self._renamed: list[tuple[str, str]] = []
        """Old and new names of the renames that are on their way."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (images or {}).items():
            (folder / name).write_bytes(content)

    def begin(self, kind: str) -> None:
        """An operation is about to be done."""
        self.operations += 1
        self.before_each(kind)

    def file(self, name: str) -> File:
        """The file of a name, which is made if there is none."""
        return self._names.setdefault(name, File())

    def link(self, name: str, new: str) -> None:
        """A file gets one more name."""
        self._names[new] = self._names[name]

    def rename(self, name: str, new: str) -> None:
        """A file gets another name in place of its own."""
        self.link(name, new)
        self.delete(name)
        self._renamed.append((name, new))

    def delete(self, name: str) -> None:
        """A name goes."""
        self._names.pop(name, None)

    def sync_names(self) -> None:
        """Names that came or went have done so for certain."""
        self._sure_names = dict(self._names)
        self._renamed.clear()

    def after_cut(self, chance: Random) -> Images:
        """What is there when the power comes back."""
        keep = chance.choice((0.0, 0.5, 0.9, 1.0))
        names = {**self._sure_names, **self._names}
        either = {name: chance.choice((self._names, self._sure_names)).get(name) for name in sorted(names)}
        for name, new in self._renamed:
            file = self._sure_names.get(name)
            if file is not None and file is self._names.get(new) and file not in (either[name], either[new]):
                either[chance.choice((name, new))] = file
        return {name: bytes(file.after_cut(chance, keep)) for name, file in either.items() if file is not None}

    def check(self) -> None:
        """Nothing was written behind our back."""
        there = {path.name for path in self.folder.iterdir() if not path.name.endswith("-shm")}
        assert there == set(self._names), "names came or went in a way that nobody follows"
        for name, file in self._names.items():
            assert (self.folder / name).read_bytes() == file.seen, f"{name} was written in a way that nobody follows"
