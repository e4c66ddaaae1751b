"""Records of the configuration files and of the folders that the user trusts."""

# ruff: noqa: PTH111, PTH112, PTH116, PTH118, PTH120 - pathlib would cost every start milliseconds

import os
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from perdure._context.project import find_topmost_instructions
from perdure._context.trusted_hashes import TrustedItem, TrustFile
from perdure._core.values import checks
from perdure._core.values.error import ConfigError
from perdure._io.files.head import is_path_below
from perdure._io.files.linux_calls import read_birth_time_ns


def is_digest_trusted(trusted: Callable[[str], bool], digest: str) -> bool:
    """Return True if the function `trusted` accepts a digest of files. Raises `ConfigError` if it returns no bool."""
    checks.require_plain_function("load_config", "trusted", trusted)
    answer = trusted(digest)
    checks.require_plain_return_type("trusted", trusted, answer, bool, "True or False")
    return answer


class TrustedFiles:
    """Record of trusted configuration files, stored in a file that only its owner can write to.

    Call it with a digest, as `load_config(…, trusted=…)` does. If the record is damaged, or others can write to it,
    nothing is trusted.
    """

    def __init__(self, path: str) -> None:
        checks.require_text("TrustedFiles", "path", path, non_empty=True)
        self._file = TrustFile(path)
        self.path = self._file.path
        """Path of the file that contains the record."""

    def __call__(self, digest: str) -> bool:
        """Return True if the user trusts a configuration with this digest (`Config.digest`)."""
        return any(each.digest == digest for each in self._file.load_trusted())

    def trust(self, path: str, digest: str, files: Mapping[str, str] | None = None) -> None:
        """Record that the user trusts the file `path` with this digest; trust in its earlier content ends.

        `files` (`Config.files`) has the digest of each file that it names, so that `list_changes` can name those that
        change later.
        """
        self._file.add_trusted(TrustedItem(digest, _resolve(path), files=dict(files or {})))

    def revoke(self, path: str) -> bool:
        """Revoke the trust in a file, whatever its content; return False if there was none."""
        return self._file.remove_trusted(_resolve(path))

    def list_changes(self, path: str, files: Mapping[str, str]) -> list[str]:
        """Return the files behind a configuration that were changed, added or removed since the user trusted it."""
        agreed = [each.files for each in self._file.load_trusted() if each.path == _resolve(path) and each.files]
        if not agreed:
            return []
        return sorted(each for each in {*agreed[0], *files} if agreed[0].get(each) != files.get(each))


def _resolve(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


FolderTrust: TypeAlias = Literal["trusted", "declined", "replaced", "unknown"]
"""What is known of a folder: `declined` if the user said no, `replaced` if another folder was trusted at its path."""

CONFIGURATION_NAMES: Final = (
    *(".git", "perdure.toml", ".mcp.json", ".perdure", "roles"),
    *("AGENTS.md", "CLAUDE.md", ".agents", ".claude"),
)
"""Names by which a folder has a repository, or configuration that the runtime reads."""
_BARE_REPOSITORY: Final = ("HEAD", "objects", "refs")


class TrustedFolders:
    """Record of the folders that the user trusts, in a file that only its owner can write to.

    Trust is in the real path of a folder, and in all folders below it, as long as the same folder is there: one that
    was put in its place is not trusted. If the record is damaged, or others can write to it, `ConfigError` is raised.
    """

    def __init__(self, path: str) -> None:
        checks.require_text("TrustedFolders", "path", path, non_empty=True)
        self._file = TrustFile(path)
        self.path = self._file.path
        """Path of the file that contains the record."""

    def check(self, folder: str | os.PathLike[str]) -> FolderTrust:
        """Return what is known of a folder, by the record of the nearest folder above it, or of itself."""
        known = {each.path: each.digest for each in self._file.load_trusted()}
        path = os.path.realpath(folder)
        forbidden = _list_untrustable_folders()
        while path not in forbidden:
            digest = known.get(path)
            if digest is not None:
                answer, _, identity = digest.partition(":")
                if identity != identify_folder(path):
                    return "replaced"
                return "trusted" if answer == "trusted" else "declined"
            path = os.path.dirname(path)
        return "unknown"

    def trust(self, folder: str | os.PathLike[str]) -> None:
        """Record that the user trusts a folder, and those in it. Raises `ConfigError` for the home folder or `/`."""
        self._record("trusted", folder)

    def decline(self, folder: str | os.PathLike[str]) -> None:
        """Record that the user was asked about a folder, and does not trust it."""
        self._record("declined", folder)

    def can_trust(self, folder: str | os.PathLike[str]) -> bool:
        """Return False for the home folder and `/`, which are never trusted as a whole."""
        return os.path.realpath(folder) not in _list_untrustable_folders()

    def revoke(self, folder: str | os.PathLike[str]) -> bool:
        """Remove what is recorded of a folder; return False if it was not trusted by itself."""
        path = os.path.realpath(folder)
        was_trusted = path in self.list_trusted()
        self._file.remove_trusted(path)
        return was_trusted

    def list_trusted(self) -> list[str]:
        """Return the paths of the trusted folders, sorted."""
        return sorted(each.path for each in self._file.load_trusted() if each.digest.startswith("trusted:"))

    def _record(self, answer: str, folder: str | os.PathLike[str]) -> None:
        path = os.path.realpath(folder)
        if not os.path.isdir(path):
            raise ConfigError(f"there is no folder {os.fspath(folder)!r} to trust")
        if path in _list_untrustable_folders():
            raise ConfigError(f"{path!r} is never trusted as a whole: trust the folder of a project in it")
        self._file.add_trusted(TrustedItem(f"{answer}:{identify_folder(path)}", path))


def find_folder_to_trust(workdir: str | os.PathLike[str]) -> str | None:
    """Return the folder that a person is asked about before a working folder is used: that of its project.

    Without a repository it is the topmost folder whose AGENTS.md would be read. `None` if nobody has to be asked: there
    is no repository, and no configuration that the runtime would read.
    """
    path = os.path.realpath(workdir)
    folders = _list_project_folders(path)
    instructions = find_topmost_instructions(path)
    if instructions is not None and not is_path_below(instructions, folders[-1]):
        return instructions
    if not any(_has_configuration(each) for each in folders):
        return None
    return folders[-1]


def _list_project_folders(path: str) -> list[str]:
    """Return a folder and those above it, up to the root of its repository; without one, only the folder."""
    forbidden = _list_untrustable_folders()
    folders = [path]
    while not os.path.lexists(os.path.join(folders[-1], ".git")):
        above = os.path.dirname(folders[-1])
        if above in forbidden or folders[-1] in forbidden:
            return [path]
        folders.append(above)
    return folders


def _has_configuration(folder: str) -> bool:
    if all(os.path.lexists(os.path.join(folder, name)) for name in _BARE_REPOSITORY):
        return True
    return any(_is_content(os.path.join(folder, name)) for name in CONFIGURATION_NAMES)


def _is_content(path: str) -> bool:
    """Return True if a path exists and is not an empty folder, as is there while a sandboxed command runs."""
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None
    except OSError:  # a file, nothing, or a folder that cannot be read
        return os.path.lexists(path)


def identify_folder(path: str) -> str:
    """Return what tells a folder from another at the same path.

    The number of a folder that was removed is often given to the next one, so that it counts when that was made. The
    device is left out: its number may change.
    """
    try:
        born = read_birth_time_ns(path)
        return f"{_read_number(path)}" if born is None else f"{_read_number(path)}-{born}"
    except OSError:
        return "missing"


def _read_number(path: str) -> int:
    return os.stat(path).st_ino


def _list_untrustable_folders() -> frozenset[str]:
    """Return `/` and the user's home folder, with everybody's files or all of one's own."""
    return frozenset({os.path.realpath(os.sep), os.path.realpath(os.path.expanduser("~"))})
