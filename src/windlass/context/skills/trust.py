"""Which skills of projects a person has agreed to. Above: `discovery.py`, the command line. Below: a file of JSON.

Whoever can write to a project can write a skill, so it does nothing until somebody has looked at it. Trust is bound to
the content of all its files: when one of them changes, it is asked for again.
"""

# ruff: noqa: PTH100, PTH103, PTH105, PTH108, PTH111, PTH120, PTH123 - pathlib would cost every start milliseconds
import contextlib
import os
import stat
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from windlass.core import check
from windlass.core.clock import new_id
from windlass.core.error import ConfigError

from .skill import Skill

Standing: TypeAlias = Literal["trusted", "changed", "new"]
"""How a skill stands: `changed` is one whose directory was trusted with other content."""

_LARGEST: Final = 16 * 1024 * 1024
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class _Entry(Struct, frozen=True):
    content_hash: str
    path: str
    name: str


class _File(Struct, frozen=True):
    trusted: tuple[_Entry, ...] = ()


class Trust:
    """Trust in skills, kept in a file that its owner alone can read and write.

    A file that is damaged, or that others can write to, trusts nothing; `problem` says so.
    """

    def __init__(self, path: str) -> None:
        check.text("Trust", "path", path, filled=True)
        self.path = os.path.abspath(os.path.expanduser(path))
        """The file."""

    @property
    def problem(self) -> str:
        """Why the file cannot be used; empty when it can."""
        try:
            self._entries()
        except ConfigError as error:
            return str(error)
        return ""

    def standing(self, skill: Skill) -> Standing:
        """Whether a skill may be used and, if not, whether its directory was trusted before."""
        if skill.source != "project":
            return "trusted"
        try:
            entries = self._entries()
        except ConfigError:
            return "new"
        if skill.content_hash and any(each.content_hash == skill.content_hash for each in entries):
            return "trusted"
        return "changed" if any(each.path == os.path.realpath(skill.path) for each in entries) else "new"

    def is_trusted(self, skill: Skill) -> bool:
        """Whether a skill may be used: it is no project's, or somebody has agreed to this very content."""
        return self.standing(skill) == "trusted"

    def trust(self, skill: Skill) -> None:
        """Agree to a skill as it is now."""
        if skill.source == "project" and not skill.content_hash:
            raise ConfigError(f"{skill!r} has no content_hash to bind trust to: take it from load_skills(…).untrusted")
        entry = _Entry(skill.content_hash, os.path.realpath(skill.path), skill.name)
        if skill.source == "project":
            self._write([*[each for each in self._entries() if each.path != entry.path], entry])

    def revoke(self, skill: Skill) -> bool:
        """Take it back, for this content and for any other that the directory had; false when there was no trust."""
        entries = self._entries()
        path = os.path.realpath(skill.path)
        left = [each for each in entries if each.path != path and each.content_hash != skill.content_hash]
        if len(left) < len(entries):
            self._write(left)
        return len(left) < len(entries)

    def _entries(self) -> tuple[_Entry, ...]:
        try:
            with open(self.path, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                data = file.read(_LARGEST)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ConfigError(f"the file of trusted skills cannot be read ({error}): check its permissions") from error
        if os.name == "posix" and mode & _OTHERS_WRITE:
            raise ConfigError(
                f"others can write to {self.path!r}, so it trusts nothing: chmod 600 it, and look into it"
            )
        try:
            return msgspec.json.decode(data, type=_File).trusted
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{self.path!r} cannot be understood ({error}), so it trusts nothing: delete it"
            ) from error

    def _write(self, entries: list[_Entry]) -> None:
        """Put another file in the place of the old one, at once: a reader sees one of them, and never a half."""
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        data = msgspec.json.format(msgspec.json.encode(_File(tuple(entries))), indent=2)
        beside = f"{self.path}.{new_id()}"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(data + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise
