"""Files that usually contain secrets, such as `.env`: their names, hard links to them, and a search for them."""

# ruff: noqa: PTH111, PTH118 - before every command, where pathlib would cost time

import contextlib
import os
import re
import stat
import threading
import time
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase, translate
from typing import Final, NamedTuple

from .head import UnreadableFile, read_file_head

SENSITIVE_NAMES: Final[tuple[str, ...]] = (
    # variables and passwords
    ".env*", "*.env", ".envs/", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".htpasswd", ".git-credentials",
    "credentials*", "client_secret*", "secrets", "secrets.*", "secrets/",
    "service-account*.json", "service_account*.json", "auth.json", "token.json", "tokens.json",
    "*.kdbx", "*.keychain*", ".vault-token",
    # keys
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk", "*.gpg", "*.p8", "*.ovpn",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*_rsa", "*_ed25519",
    # what programs keep for themselves
    ".git/", ".ssh/", ".gnupg/", ".aws/", ".azure/", ".kube/", "kubeconfig*", "*.kubeconfig", ".docker/config.json",
    ".dockercfg", ".config/gcloud/", ".config/gh/", ".npmrc", ".yarnrc*", ".pypirc", ".terraform/", "*.tfstate*",
    "*.tfvars*",
    # what was typed and seen elsewhere
    ".*_history", ".mozilla/", "cookies.sqlite*",
)  # fmt: skip
"""Patterns of names that often mean secrets."""
_MOST_KNOWN: Final = 100_000


def find_blocking_pattern(steps: Sequence[str], patterns: Iterable[str]) -> str:
    """Return the pattern that forbids reading the file with the path `steps`; empty if the file may be read."""
    plain = [normalize_name(step) for step in steps]
    return next((pattern for pattern in patterns if _is_match(plain, pattern)), "")


class BlockedNames:
    """A compiled set of file name patterns, which quickly finds the pattern that blocks a path.

    Most names match no pattern, and cost one look-up.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        steps = {normalize_name(step) for pattern in patterns for step in pattern.strip("/").split("/")}
        self._any_step = re.compile("|".join([translate(each) for each in sorted(steps)]) or r"(?!)")
        self._known: dict[str, bool] = {}

    def find(self, steps: Sequence[str], *, is_folder: bool = False) -> str:
        """Return the pattern that forbids a file, or a folder with everything in it; empty if it may be read."""
        if not any(self.may_match(step) for step in steps):
            return ""
        return find_blocking_pattern((*steps, "") if is_folder else steps, self._patterns)

    def may_match(self, name: str) -> bool:
        """Return True if a path with this name in it may match a pattern."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[name] = self._any_step.match(normalize_name(name)) is not None
        return known


def _is_match(names: Sequence[str], pattern: str) -> bool:
    wanted = [normalize_name(each) for each in pattern.strip("/").split("/")]
    last = len(names) - len(wanted)
    places = range(last) if pattern.endswith("/") else range(last, last + 1)
    return last >= 0 and any(all(map(fnmatchcase, names[at:], wanted)) for at in places)


def normalize_name(name: str) -> str:
    """Normalize a file name, so that spellings which file systems treat as equal are equal.

    Spellings differ in case, in Unicode forms, in invisible characters, and in trailing dots.
    """
    seen = [each for each in unicodedata.normalize("NFKC", name) if unicodedata.category(each) != "Cf"]
    return "".join(seen).casefold().rstrip(". ") or name


_MOST_ENTRIES: Final = 5_000
"""Files and folders of the home that are looked at."""
_SECONDS: Final = 5.0
"""How long it is remembered what the secrets of the home are."""
_NAMES: Final = BlockedNames(SENSITIVE_NAMES)
_lock: Final = threading.Lock()
_known: dict[str, tuple[float, frozenset[tuple[int, int]]]] = {}


def is_link_to_secret(status: os.stat_result) -> bool:
    """Return True for a file that has another name, which is that of a secret in the user's home folder."""
    has_names = stat.S_ISREG(status.st_mode) and status.st_nlink > 1
    return has_names and (status.st_dev, status.st_ino) in list_linked_secrets()


def list_linked_secrets() -> frozenset[tuple[int, int]]:
    """Return device and inode of the secrets in the home folder that have other names."""
    home = os.path.expanduser("~")
    with _lock:
        since, found = _known.get(home, (-_SECONDS, frozenset()))
        now = time.monotonic()
        if now - since >= _SECONDS:
            found = frozenset(_find_linked(home))
            _known.clear()
            _known[home] = now, found
        return found


def _find_linked(home: str) -> Iterator[tuple[int, int]]:
    waiting: list[tuple[str, tuple[str, ...], bool]] = [
        (home, (), False),
        (os.path.join(home, ".config"), (".config",), False),
    ]
    left = _MOST_ENTRIES
    while waiting and left > 0:
        folder, above, is_secret = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for each in entries:
                left -= 1
                if each.is_symlink():
                    continue
                is_folder = each.is_dir(follow_symlinks=False)
                if not is_secret and not _NAMES.find((*above, each.name), is_folder=is_folder):
                    continue
                if is_folder:
                    waiting.append((each.path, (), True))
                    continue
                status = each.stat(follow_symlinks=False)
                if status.st_nlink > 1:
                    yield status.st_dev, status.st_ino


MOST_ENTRIES: Final = 5_000
"""The most files and folders that are looked at; about more, nothing is known."""
IGNORE_FILES: Final = (".gitignore", ".ignore", ".rgignore")
"""Files in which a line with `!` makes ripgrep show what it would leave out because its name begins with a dot."""
_MOST_IGNORE_BYTES: Final = 256 * 1024
_BLOCKED: Final = BlockedNames(SENSITIVE_NAMES)


class _UnknownRulesError(Exception):
    """Raised for an ignore file that leads elsewhere, or cannot be read: it may bring anything."""


class _LeftOut(NamedTuple):
    """The paths and names in a folder that a command does not look at."""

    paths: Collection[str]
    names: Collection[str]
    """Of folders."""
    patterns: Sequence[str] | None
    """If given, names that begin with a dot are left out, but for those that match one."""
    follows_links: bool


def has_no_secrets(
    folder: str,
    above: Sequence[str] = (),
    *,
    hidden_paths: Collection[str] = (),
    skipped_names: Collection[str] = (),
    shown_patterns: Sequence[str] | None = None,
    follows_links: bool = False,
) -> bool:
    """Return True if it is certain that no file below a folder has a name that suggests secrets.

    Args:
        folder: The real path of the folder; of a file, there is nothing below.
        above: The names that lead from the working folder to it.
        hidden_paths: Files and folders that are hidden from the command.
        skipped_names: Names of folders that are not entered.
        shown_patterns: If given, the command is ripgrep: names that begin with a dot are left out, unless one of these
            patterns, or a line of an ignore file, brings them.
        follows_links: Whether links are followed; then none may be there.
    """
    is_ripgrep = shown_patterns is not None
    try:
        patterns = (*(shown_patterns or ()), *(_list_patterns_above(folder, above) if is_ripgrep else ()))
    except _UnknownRulesError:
        return False
    pending = [(folder, tuple(above), patterns)]
    seen = 0
    while pending:
        path, steps, patterns = pending.pop()
        try:
            with os.scandir(path) as entries:
                listed = [*entries]
            if is_ripgrep:
                patterns = (*patterns, *_list_shown_patterns(path, [each.name for each in listed]))
        except NotADirectoryError:
            continue
        except (OSError, _UnknownRulesError):
            return False
        seen += len(listed)
        left_out = _LeftOut(hidden_paths, skipped_names, patterns if is_ripgrep else None, follows_links)
        folders = _list_open_folders(listed, steps, left_out) if seen <= MOST_ENTRIES else None
        if folders is None:
            return False
        pending += [(path, inside, patterns) for path, inside in folders]
    return True


def _list_open_folders(
    entries: Sequence["os.DirEntry[str]"], steps: tuple[str, ...], left_out: "_LeftOut"
) -> list[tuple[str, tuple[str, ...]]] | None:
    """Return the folders of a folder that have to be looked at; `None` if it has a name that suggests secrets."""
    folders: list[tuple[str, tuple[str, ...]]] = []
    for each in entries:
        patterns = left_out.patterns
        if patterns is not None and each.name.startswith(".") and not _is_shown(each.name, patterns):
            continue
        if each.is_symlink():
            if left_out.follows_links:
                return None
            continue
        is_folder = each.is_dir(follow_symlinks=False)
        if (is_folder and each.name in left_out.names) or each.path in left_out.paths:
            continue
        inside = (*steps, each.name)
        if _BLOCKED.find(inside, is_folder=is_folder):
            return None
        if is_folder:
            folders.append((each.path, inside))
    return folders


def _list_patterns_above(folder: str, above: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of the ignore files in the folders from the working folder down to one, without its own."""
    root = folder[: len(folder) - sum(len(each) + 1 for each in above)] if above else folder
    found: tuple[str, ...] = ()
    for depth in range(len(above)):
        place = os.path.join(root, *above[:depth])
        found += _list_shown_patterns(place, [*IGNORE_FILES, ".git"])
    return found


def _list_shown_patterns(folder: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the last names of the patterns by which the ignore files of a folder show what they would leave out.

    Raises `_UnknownRulesError` for a file of rules that is a link: ripgrep would read where it leads.
    """
    found: list[str] = []
    for name in names:
        if name in IGNORE_FILES:
            found += _read_shown_patterns(os.path.join(folder, name))
        elif name == ".git":
            found += _read_shown_patterns(os.path.join(folder, name, "info", "exclude"), git=os.path.join(folder, name))
    return tuple(found)


def _read_shown_patterns(path: str, *, git: str = "") -> list[str]:
    """Return the last name of each pattern after a `!`."""
    for each in (git, git and os.path.join(git, "info"), path):
        if not each:
            continue
        try:
            mode = os.lstat(each).st_mode
        except OSError:
            return []
        if not (stat.S_ISDIR(mode) if each != path else stat.S_ISREG(mode)):
            raise _UnknownRulesError
    try:
        found = read_file_head(path, _MOST_IGNORE_BYTES)
    except UnreadableFile:
        return []
    if found.is_truncated:
        raise _UnknownRulesError
    lines = found.data.decode("utf-8", "replace").removeprefix("\ufeff").splitlines()
    return [take_last_name(each[1:]) for each in lines if each.startswith("!")]


def take_last_name(pattern: str) -> str:
    """Return the pattern for the last name of a path that a pattern of an ignore file, or `rg -g`, matches."""
    return pattern.rstrip().rstrip("/").rpartition("/")[2]


def _is_shown(name: str, patterns: Sequence[str]) -> bool:
    """Return True if one of the patterns may match a name; what is written in another way than usual may."""
    return any(
        any(special in each for special in "{\\[") or fnmatchcase(name.casefold(), each.casefold() or "*")
        for each in patterns
    )
