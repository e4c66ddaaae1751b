"""Versions of a prompt, each in a separate file of a folder, chosen by name.

Asking for a missing version is an error and never falls back to another: a comparison of two prompts must not silently
compare one with itself.
"""

# ruff: noqa: PTH118 - a Path would cost every start milliseconds
import os
from typing import Final

from perdure._core.values import checks
from perdure._core.values.error import ConfigError
from perdure._io.files.confined_folder import ConfinedFolder

from .text_files import read_confined_text

MOST_BYTES: Final = 1024 * 1024
"""Maximum size of a file."""


class Prompts:
    """The versions of a prompt in the `*.md` files of a folder, by file name. Files are read once, on construction."""

    def __init__(self, directory: str | os.PathLike[str] | ConfinedFolder, default: str) -> None:
        """Read all versions of the prompt from the folder; `default` names the version used without a name.

        Args:
            directory: The folder of the files. A link in it that leads out of it is refused.
            default: The version to use if none is named. It has to exist.
        """
        if not isinstance(directory, str | os.PathLike | ConfinedFolder):
            checks.raise_config_error("Prompts", "directory", directory, "give the path of a folder")
        checks.require_text("Prompts", "default", default, non_empty=True)
        folder = directory if isinstance(directory, ConfinedFolder) else ConfinedFolder(directory)
        self.directory = folder.root if isinstance(directory, ConfinedFolder) else os.fspath(directory)
        """The folder of the files."""
        self.default = default
        """Version returned by `get("")`."""
        self._texts = {name.removesuffix(".md"): self._read_prompt(folder, name) for name in self._list_files(folder)}
        self.versions = tuple(sorted(self._texts))
        """All versions, sorted."""
        self.get(default)

    def get(self, version: str = "") -> str:
        """Return the prompt of this version, ending with a newline. Raise `ConfigError`, which lists all versions, if
        it is missing.
        """
        checks.require_text("Prompts.get", "version", version)
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

    def _list_files(self, folder: ConfinedFolder) -> list[str]:
        try:
            return [name for name in folder.list_names() if name.endswith(".md") and not name.startswith(".")]
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"the folder of prompts {self.directory!r} cannot be read: {reason}") from error

    def _read_prompt(self, folder: ConfinedFolder, name: str) -> str:
        text = read_confined_text(folder, name, MOST_BYTES)
        if not text.strip():
            raise ConfigError(f"the prompt {os.path.join(self.directory, name)!r} is empty: fill it, or remove it")
        return text.rstrip("\n") + "\n"
