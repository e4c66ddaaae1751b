"""The sandbox of commands on Linux: bubblewrap, with all files read-only but the working folder, and no network."""

# ruff: noqa: PTH103, PTH105, PTH106, PTH108, PTH111, PTH110, PTH112, PTH114, PTH116, PTH118, PTH119 - before every command, where pathlib would cost milliseconds
import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from msgspec import Struct

from perdure.core.error import ConfigError
from perdure.files.sensitive_names import SENSITIVE_NAMES, find_blocking_pattern

from .secret_covers import choose_covers, cover_secrets

CONFIG_NAMES: Final = ("perdure.toml", ".mcp.json", ".perdure")
"""Names in the working folder that the runtime reads as configuration: never writable, also while they do not exist."""
GIT_FILES: Final = ("config",)
GIT_FOLDERS: Final = ("hooks",)
"""Names in `.git` that make git run programs, outside of the sandbox too."""
_HIDDEN_FOLDERS: Final = ("/run", "/var/tmp", "/tmp")  # noqa: S108 - these are hidden, nothing is written there
"""Folders where other programs listen on sockets, or keep files of other users."""
SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/run/current-system/sw/bin:/opt/homebrew/bin"
"""Folders of programs that only the administrator can change."""
_PLACEHOLDER_MODE: Final = 0o444
_COVER_TEXT: Final = b"""# This name is reserved: a command in the sandbox cannot create a file or folder here.
# The folder is empty outside of the sandbox, and goes away with the last command.
*
"""
_TMP_BYTES: Final = 512 * 1024 * 1024
_MOST_ENTRIES: Final = 2_000
"""Entries of the working folder that are looked at for names that mean secrets."""
_NAMESPACES: Final = ("--unshare-user", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
_NO_NESTING: Final = "--disable-userns"
START_MARK: Final = b"\x06"
"""The first byte on standard error of a command in the sandbox: it has started, and ends with the host from now on."""
_ANNOUNCEMENT: Final = """\
printf '\\006' >&2 && read -r go || exit 137
exec 3<&0
(read -r go <&3; kill -s KILL -- -1) >/dev/null 2>&1 &
exec "$@" <"$0" 3<&-"""
"""Announces the command, waits for the answer, and kills everything in the sandbox when the pipe of the answer ends."""


@cache
def find_bubblewrap() -> tuple[tuple[str, ...], str]:
    """Return the command that starts bubblewrap on this machine; if it cannot be used, `()` and the reason."""
    program = find_system_program("bwrap")
    if program is None:
        return (), "bubblewrap is not installed (on Debian and Ubuntu: apt-get install bubblewrap)"
    problem = ""
    for options in ((*_NAMESPACES, _NO_NESTING), _NAMESPACES):
        tried = subprocess.run(  # noqa: S603 - our own words
            [program, *options, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--", "/bin/true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=False,
        )
        if tried.returncode == 0:
            return (program, *options), ""
        problem = tried.stderr.decode("utf-8", "replace").strip() or f"exit code {tried.returncode}"
    return (), f"bubblewrap does not work here: {problem}"


def find_system_program(name: str) -> str | None:
    """Return the path of a program in the system's own folders; `None` if it is not there.

    The PATH of this process is not used: it may lead into the working folder.
    """
    return shutil.which(name, path=SYSTEM_PATH)


class CoverMountSources(Struct, frozen=True):
    """The folder and files mounted read-only over paths that a sandboxed command must not create, or see.

    Made by `make_covers`.
    """

    folder: str
    """A folder in which git ignores everything."""
    file: str
    """An empty file."""
    closed: str
    """A file that cannot be read."""


def make_covers() -> CoverMountSources:
    """Create the folder and files that are mounted over paths which a sandboxed command must not create, or see.

    Over a name in the working folder it is a folder. An empty one outside, and one in which everything is ignored
    inside, are nothing to git: it neither lists, adds, stashes nor removes them. A file it would do all this to.
    """
    place = make_user_temp_folder()
    covers = CoverMountSources(*[os.path.join(place, "covers", name) for name in ("folder", "file", "closed")])
    os.makedirs(covers.folder, exist_ok=True)
    files = (os.path.join(covers.folder, ".gitignore"), _COVER_TEXT, 0o444), (covers.file, b"", 0o444)
    for path, content, mode in (*files, (covers.closed, b"", 0)):
        if not os.path.exists(path):
            with tempfile.NamedTemporaryFile(dir=place, delete=False) as file:
                file.write(content)
                os.fchmod(file.fileno(), mode)
            os.replace(file.name, path)
    return covers


def make_user_temp_folder() -> str:
    """Create and return this user's folder in the system's temporary folder, for files that several processes share."""
    folder = os.path.join(tempfile.gettempdir(), f"perdure-locks-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.stat(folder, follow_symlinks=False).st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    return folder


def build_sandbox(root: str, *, network: bool, readable: Sequence[str] = (), writable: Sequence[str] = ()) -> list[str]:
    """Return the command line prefix that runs a command in the sandbox. Raises `ConfigError` without bubblewrap."""
    start, problem = find_bubblewrap()
    if not start:
        raise ConfigError(problem)
    words = [*start, *(["--share-net"] if network else []), "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for folder in _HIDDEN_FOLDERS:
        if os.path.isdir(folder) and not os.path.islink(folder):
            words += ["--size", str(_TMP_BYTES), "--tmpfs", folder]
    if network and os.path.isdir("/run/systemd/resolve"):
        words += ["--ro-bind", "/run/systemd/resolve", "/run/systemd/resolve"]
    for folder in readable:
        words += ["--ro-bind", folder, folder]
    covers = make_covers()
    words += _hide_secrets(find_home_secrets(), covers)
    for folder in (root, *writable):
        words += ["--bind", folder, folder]
    words += cover_secrets(root, find_secrets(root), covers)
    words += protect_configuration(root, covers)
    return [*words, "--"]


def build_start_announcement(env: Mapping[str, str]) -> list[str]:
    """Build the argv prefix that signals to the host that the sandbox has started, and waits for its reply.

    The sandbox ends with its parent, but only once each part of it has asked the kernel for that, which may be after
    the command has begun. So the command begins when the host answers, and a process in the sandbox ends everything
    there when the host is gone. A shell would drop variables whose names are not identifiers: with such a variable
    there is nothing in front of the command.
    """
    shell = "/bin/sh"
    if not os.access(shell, os.X_OK) or not all(name.isascii() and name.isidentifier() for name in env):
        return []
    is_plain = os.path.basename(os.path.realpath(shell)) == "dash"  # which adds no variables but PWD
    added = [] if is_plain else [name for name in ("SHLVL", "OLDPWD", "_") if name not in env]
    cleaned = [word for name in added for word in ("-u", name)]
    env_program = find_system_program("env")
    prefix = [env_program, *cleaned] if cleaned and env_program is not None else []
    return [shell, "-c", _ANNOUNCEMENT, os.devnull, *prefix]


def replace_stdin(words: Sequence[str], descriptor: int) -> list[str]:
    """Return a command line, changed so that the standard input of the command is an open file.

    The command line contains the prefix that `build_start_announcement` returns.
    """
    at = words.index(_ANNOUNCEMENT) + 1
    return [*words[:at], f"/proc/self/fd/{descriptor}", *words[at + 1 :]]


def _hide_secrets(paths: Iterable[str], covers: CoverMountSources) -> Iterator[str]:
    for path in paths:
        is_folder = os.path.isdir(path)
        yield from ["--tmpfs", path] if is_folder else ["--ro-bind", covers.file, path]


def protect_configuration(root: str, covers: CoverMountSources) -> Iterator[str]:
    """Yield bubblewrap options so that a command can neither change nor create configuration files of Perdure and git.

    For a name that does not exist, bubblewrap creates an empty folder or file to mount over; `remove_placeholders`
    removes it afterwards. `.git` itself is mounted too: a folder that something is mounted on cannot be renamed away.
    """
    for name in CONFIG_NAMES:
        yield from _protect(os.path.join(root, name), covers.folder)
    own = os.path.realpath(sys.prefix)  # what a command changes there would run in this program next time
    if own.startswith(f"{root}/"):
        yield from ("--ro-bind", own, own)
    git = os.path.join(root, ".git")
    if is_real_folder(git):
        yield from ("--bind", git, git)
        for name in GIT_FILES:
            yield from _protect(os.path.join(git, name), covers.file)
        for name in GIT_FOLDERS:
            yield from _protect(os.path.join(git, name), covers.folder)


def _protect(path: str, cover: str) -> Iterator[str]:
    if os.path.islink(path):
        raise ConfigError(f"{path} is a link, and cannot be protected from commands: put the file itself there")
    is_there = os.path.lexists(path) and not is_sandbox_placeholder(path)
    yield from ("--ro-bind", path if is_there else cover, path)


def list_placeholder_paths(root: str) -> list[str]:
    """Return the protected paths that do not exist, at which bubblewrap creates empty placeholders to mount over.

    What a host has left behind that was killed is among them, and what another host uses now.
    """
    names = [os.path.join(root, name) for name in CONFIG_NAMES]
    git = os.path.join(root, ".git")
    if is_real_folder(git):
        names += [os.path.join(git, name) for name in (*GIT_FILES, *GIT_FOLDERS)]
    return [each for each in names if not os.path.lexists(each) or is_sandbox_placeholder(each)]


def is_sandbox_placeholder(path: str) -> bool:
    """Return True if a path is an empty placeholder that bubblewrap created to mount over, in use or left over.

    That is an empty folder with a name of the configuration; in `.git`, an empty file with the mode that bubblewrap
    gives it.
    """
    found = os.lstat(path)
    if stat.S_ISDIR(found.st_mode):
        return os.path.basename(path) in CONFIG_NAMES and not _list_folder(path)
    is_empty = stat.S_ISREG(found.st_mode) and found.st_size == 0 and stat.S_IMODE(found.st_mode) == _PLACEHOLDER_MODE
    return is_empty and os.path.basename(path) in GIT_FILES


def remove_placeholders(paths: Iterable[str]) -> None:
    """Remove the empty files and folders that bubblewrap created to mount over, unless they have content now."""
    for path in paths:
        with contextlib.suppress(OSError):
            found = os.lstat(path)
            if stat.S_ISDIR(found.st_mode):
                os.rmdir(path)  # fails unless it is empty
            elif os.path.basename(path) in GIT_FILES and stat.S_ISREG(found.st_mode) and found.st_size == 0:
                os.unlink(path)


def is_real_folder(path: str) -> bool:
    """Return True if a path is a folder, and not a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def find_home_secrets() -> list[str]:
    """Return paths in the user's home folders that often contain secrets, such as `.ssh`, and Perdure's own folder."""
    found: list[str] = []
    for home in find_own_home_folders():
        own = os.path.realpath(os.environ.get("PERDURE_HOME") or os.path.join(home, ".perdure"))
        found += find_secrets(home, depth=1)
        found += find_secrets(os.path.join(home, ".config"), depth=1, above=(".config",))
        found += [own] if is_real_folder(own) else []
    return list(dict.fromkeys(found))


def find_own_home_folders() -> list[str]:
    """Return the home folders of the current user: the one in HOME, and the one in the system's user database."""
    import pwd  # which Windows does not have

    homes = [os.path.expanduser("~")]
    with contextlib.suppress(KeyError, OSError):
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    return list(dict.fromkeys([path for each in homes if (path := os.path.realpath(each)) != "/"]))


def find_hidden_secrets(root: str) -> list[str]:
    """Return the files and folders of a working folder that the sandbox hides, because their names suggest secrets."""
    return [path for path, options in choose_covers(root, find_secrets(root), make_covers()) if options]


def find_secrets(root: str, *, depth: int = 2, above: tuple[str, ...] = ()) -> list[str]:
    """Return files and folders whose names suggest secrets, in the top `depth` levels of a folder, without `.git`."""
    found: list[str] = []
    level = [(root, above)]
    seen = 0
    for _ in range(depth):
        below: list[tuple[str, tuple[str, ...]]] = []
        for folder, names in level:
            for entry in _list_folder(folder):
                seen += 1
                if seen > _MOST_ENTRIES:
                    return found
                if entry.is_symlink() or entry.name == ".git":
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                steps = [*names, entry.name, "x"] if is_folder else [*names, entry.name]
                if find_blocking_pattern(steps, SENSITIVE_NAMES):
                    found.append(entry.path)
                elif is_folder:
                    below.append((entry.path, (*names, entry.name)))
        level = below
    return found


def _list_folder(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda each: each.name)
    except OSError:
        return []
