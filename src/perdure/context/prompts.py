"""Prompts in versions, a file for each. Above: whoever puts instructions together. Below: `text_file.py`.

A version that is asked for and is not there is an error, never another version: a comparison of two prompts must not
quietly compare one with itself.
"""

# ruff: noqa: PTH118, PTH208 - a Path would cost every start milliseconds
import os
from typing import Final

from perdure.core import check
from perdure.core.error import ConfigError

from .text_file import read_whole

MOST_BYTES: Final = 1024 * 1024
"""Of one file."""


class Prompts:
    """The `*.md` files of a folder: the name of a file is a version, its text a prompt. Read once, when it is made."""

    def __init__(self, directory: str | os.PathLike[str], default: str) -> None:
        """Read all versions.

        Args:
            directory: The folder of the files.
            default: The version that is meant when none is named. It has to be there.
        """
        if not isinstance(directory, str | os.PathLike):
            check.refuse("Prompts", "directory", directory, "give the path of a folder")
        check.text("Prompts", "default", default, filled=True)
        self.directory = os.fspath(directory)
        """The folder of the files."""
        self.default = default
        """The version that `get("")` gives."""
        self._texts = {name.removesuffix(".md"): self._read(name) for name in self._names()}
        self.versions = tuple(sorted(self._texts))
        """All versions that there are, sorted."""
        self.get(default)

    def get(self, version: str = "") -> str:
        """The prompt of this version, with one newline at its end. Raises `ConfigError`, which lists all versions."""
        check.text("Prompts.get", "version", version)
        text = self._texts.get(version or self.default)
        if text is None:
            known = ", ".join(map(repr, self.versions)) or "none, as there is no *.md file"
            raise ConfigError(
                f"there is no version {version or self.default!r} of the prompts in {self.directory!r}; "
                f"there are {known}"
            )
        return text

    def __repr__(self) -> str:
        return f"Prompts({self.directory!r}, default={self.default!r}, versions={self.versions!r})"

    def _names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self.directory) if name.endswith(".md") and not name.startswith(".")]
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"the folder of prompts {self.directory!r} cannot be read: {reason}") from error

    def _read(self, name: str) -> str:
        text = read_whole(os.path.join(self.directory, name), MOST_BYTES)
        if not text.strip():
            raise ConfigError(f"the prompt {os.path.join(self.directory, name)!r} says nothing: fill it, or remove it")
        return text.rstrip("\n") + "\n"
