"""`FileState`: what is at a path at one moment: a file, a link or a folder, by digest and permission bits, or nothing.

Two states are compared by kind and digest. The permission bits count only for a change that has changed them: what
others do to them meanwhile is no reason to refuse an undo.
"""

from typing import Final, Literal, TypeAlias

from msgspec import Struct

FileKind: TypeAlias = Literal["none", "file", "link", "folder"]
"""What is at a path."""


class FileState(Struct, frozen=True, array_like=True, omit_defaults=True):
    """The state of a path: the kind of what is there, the digest of its content, and its permission bits."""

    kind: FileKind = "none"
    digest: str = ""
    """SHA-256 of the content of a file, or of the target of a link; empty for a folder, and for nothing."""
    mode: int | None = None
    """Permission bits; `None` if they are not known, or mean nothing."""

    def is_same(self, other: "FileState", *, with_mode: bool = False) -> bool:
        """Return True if two states are alike; with `with_mode`, in their permission bits too, where both are known."""
        if (self.kind, self.digest) != (other.kind, other.digest):
            return False
        return not with_mode or None in {self.mode, other.mode} or self.mode == other.mode


NOTHING: Final = FileState()
"""The state of a path where there is no file."""


def build_file_state(digest: str, mode: int | None = None) -> FileState:
    """Return the state of a file with this digest; that of no file for the empty digest."""
    return FileState("file", digest, mode) if digest else NOTHING


def has_changed_mode(before: FileState, after: FileState) -> bool:
    """Return True if a change has given a file other permission bits, as far as both are known."""
    return None not in {before.mode, after.mode} and before.mode != after.mode
