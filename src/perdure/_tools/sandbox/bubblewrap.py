"""The sandbox of commands on Linux: bubblewrap, with all files read-only but the working folder, and no network."""

# ruff: noqa: PTH103, PTH105, PTH106, PTH108, PTH110, PTH112, PTH114, PTH116, PTH118, PTH119 - before every command, where pathlib would cost milliseconds
import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from msgspec import Struct

from perdure._core.values.error import ConfigError
from perdure._io.files.sensitive import (
    IGNORE_FILES,
    MOST_ENTRIES,
    SENSITIVE_NAMES,
    BlockedNames,
    is_link_to_secret,
    list_linked_secrets,
)
from perdure._io.home.paths import get_perdure_home, get_user_home
from perdure._io.home.runtime_files import iterate_folders_above

from .covers import (
    RuntimeFileCovers,
    add_remembered_secrets,
    bound_kernel_files,
    choose_covers,
    cover_runtime_files,
    cover_secrets,
    hide_files_of_root,
    merge_pinned,
)
from .seccomp import has_system_call_filter, open_system_call_filter
from .shown_folders import is_below, list_hidden_folders, list_shown_folders, may_be_hidden

CONFIG_NAMES: Final = ("perdure.toml", ".mcp.json", ".perdure")
"""Names in the working folder that the runtime reads as configuration: never writable, also while they do not exist."""
SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/run/current-system/sw/bin:/opt/homebrew/bin"
"""Folders of programs that only the administrator can change."""
_COVER_TEXT: Final = b"""# This name is reserved: a command in the sandbox cannot create a file or folder here.
# The folder is empty outside of the sandbox, and goes away with the last command.
*
"""
_TMP_BYTES: Final = 512 * 1024 * 1024
_MOST_ENTRIES: Final = 10_000
"""Entries of the working folder that are looked at for names that mean secrets."""
_MOST_DEPTH: Final = 64
"""Levels of the working folder that are looked at for them before a command that only reads."""
_MOST_COVERS: Final = 500
"""Files and folders that are hidden from such a command; in a folder with more it is asked about."""
_SECRET_NAMES: Final = BlockedNames(SENSITIVE_NAMES)
_NAMESPACES: Final = ("--unshare-user", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
_NO_NESTING: Final = "--disable-userns"
_USER_OF_ROOT: Final = 1000
"""The user number that a command of root has in its sandbox: many programs do what they should not as root."""
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
        tested = [program, *options, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--", "/bin/true"]
        with filter_system_calls(tested) as (words, descriptors):
            tried = subprocess.run(  # noqa: S603 - our own words
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=10,
                check=False,
                pass_fds=descriptors,
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


def build_sandbox(
    root: str,
    *,
    network: bool,
    readable: Sequence[str] = (),
    writable: Sequence[str] = (),
    read_only: bool = False,
    git: Sequence[str] = (),
    pinned: Sequence[str] = (),
    runtime_files: RuntimeFileCovers | None = None,
) -> list[str]:
    """Return the command line prefix that runs a command in the sandbox. Raises `ConfigError` without bubblewrap.

    `git` has the options for what the command sees of git repositories, and `pinned` those for the folders above them,
    from `git_mounts`. `runtime_files` has what `find_runtime_files` returns.

    With `read_only` nothing can be written but the private `/tmp`, there is no network, and secrets are hidden at any
    depth: for commands that run because they only read, so that a mistake about one can do no more than that.
    """
    start, problem = find_bubblewrap()
    if not start:
        raise ConfigError(problem)
    has_network = network and not read_only
    runtime_files = runtime_files or find_runtime_files(root, readable=readable, writable=writable, read_only=read_only)
    is_root = os.geteuid() == 0
    covers = make_covers()
    words = [*start, *(["--share-net"] if has_network else []), "--ro-bind", "/", "/", "--dev", "/dev"]
    words += ["--proc", "/proc", *bound_kernel_files(covers.file, is_root=is_root)]
    homes = find_own_home_folders()
    hidden = [*list_hidden_folders(homes), *runtime_files.around]
    if is_root:
        words += ["--uid", str(_USER_OF_ROOT), "--gid", str(_USER_OF_ROOT)]
        words += hide_files_of_root(covers.closed, [root, *readable, *writable], hidden)
    for folder in hidden:
        words += ["--size", str(_TMP_BYTES), "--tmpfs", folder]
    for home in homes:
        if any(is_below(home, folder) for folder in hidden):
            words += ["--dir", home]
    shown = list_shown_folders(root, hidden, homes)
    for folder in (*shown, *readable):
        words += ["--ro-bind", folder, folder]
    words += _hide_secrets(_find_shown_secrets(hidden, shown, readable), covers)
    if has_network and os.path.isdir("/run/systemd/resolve"):
        words += ["--ro-bind", "/run/systemd/resolve", "/run/systemd/resolve"]
    if read_only:
        for folder in (root, *writable):
            words += ["--ro-bind", folder, folder]
        words += cover_secrets(root, find_all_secrets(root), covers)
        for path in _list_ignore_files_above(root):
            words += ["--ro-bind", covers.file, path]
        return [*words, *git, *runtime_files.list_options(root, covers, git), "--"]
    for folder in (root, *writable):
        words += ["--bind", folder, folder]
    own = _list_own_folders((root, *writable))
    words += merge_pinned([*runtime_files.pinned, *_list_folders_above(own, (root, *writable))], pinned)
    words += cover_secrets(root, add_remembered_secrets(root, find_secrets(root)), covers)
    words += git
    words += protect_configuration(root, covers, own)
    return [*words, *runtime_files.list_options(root, covers, git), "--"]


def find_runtime_files(
    root: str, *, readable: Sequence[str] = (), writable: Sequence[str] = (), read_only: bool = False
) -> RuntimeFileCovers:
    """Return the files of the runtime that a command could see, and create those that it could put in their place."""
    homes = find_own_home_folders()
    hidden = list_hidden_folders(homes)
    shown = [*list_shown_folders(root, hidden, homes), *readable]
    return cover_runtime_files((root, *writable), hidden=hidden, shown=shown, read_only=read_only)


@contextlib.contextmanager
def filter_system_calls(
    words: Sequence[str], *, unix_sockets: bool = False
) -> Generator[tuple[list[str], tuple[int, ...]]]:
    """Add the filter of system calls to a command line of bubblewrap.

    Whoever runs what `build_sandbox` returns uses this. Yields the command line, and the open files that its process
    has to inherit.
    """
    if not has_system_call_filter():
        yield [*words], ()
        return
    program, *options = words
    descriptor = open_system_call_filter(unix_sockets=unix_sockets)
    try:
        yield [program, "--seccomp", str(descriptor), *options], (descriptor,)
    finally:
        os.close(descriptor)


def _find_shown_secrets(hidden: Sequence[str], shown: Sequence[str], readable: Sequence[str]) -> Iterable[str]:
    """Return what is still to be hidden of the homes, and of the folders that are shown of them."""
    found = [path for folder in shown for path in find_secrets(folder, depth=1)]
    for path in find_home_secrets():
        is_hidden = any(is_below(path, each) for each in hidden)
        if not is_hidden or any(path == each or is_below(path, each) for each in readable):
            found.append(path)
    return dict.fromkeys(found)


def build_start_announcement(env: Mapping[str, str]) -> list[str]:
    """Build the argv prefix that signals to the host that the sandbox has started, and waits for its reply.

    The sandbox ends with its parent, but only once each part of it has asked the kernel for that, which may be after
    the command has begun. So the command begins when the host answers, and a process in the sandbox ends everything
    there when the host is gone. Most shells would drop variables whose names are not identifiers: with such a variable
    it is bash, which passes them on, and in this mode obeys none. Raises `ConfigError` if there is no such shell:
    without an announcement nobody would see what is mounted before the command begins.
    """
    is_usual = all(name.isascii() and name.isidentifier() for name in env)
    shell = "/bin/sh" if is_usual else find_system_program("bash")
    if shell is None or not os.access(shell, os.X_OK):
        missing = "/bin/sh is" if is_usual else "a variable has an unusual name, and bash, which would pass it on, is"
        raise ConfigError(f"commands cannot be started in the sandbox: {missing} not installed")
    is_plain = os.path.basename(os.path.realpath(shell)) == "dash"  # which adds no variables but PWD
    added = [] if is_plain else [name for name in ("SHLVL", "OLDPWD", "_") if name not in env]
    cleaned = [word for name in added for word in ("-u", name)]
    env_program = find_system_program("env")
    prefix = [env_program, *cleaned] if cleaned and env_program is not None else []
    options = [] if is_usual else ["--noprofile", "--norc", "-p"]
    return [shell, *options, "-c", _ANNOUNCEMENT, os.devnull, *prefix]


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


def protect_configuration(root: str, covers: CoverMountSources, own: Iterable[str]) -> Iterator[str]:
    """Yield bubblewrap options so that a command can neither change nor create configuration files of Perdure.

    `own` are the folders of the program itself. For a name that does not exist, bubblewrap creates an empty folder to
    mount over; `remove_placeholders` removes it afterwards. The view of `.git` is chosen in `git_mounts`.
    """
    for name in CONFIG_NAMES:
        yield from _protect(os.path.join(root, name), covers.folder)
    for folder in own:
        yield from ("--ro-bind", folder, folder)


def _list_own_folders(folders: Iterable[str]) -> list[str]:
    """Return the environment of this program, and its interpreter's, where they lie below some folders.

    What a command changes there would run in this program next time.
    """
    own = dict.fromkeys([os.path.realpath(each) for each in (sys.prefix, sys.base_prefix)])
    return [each for each in own if any(is_below(each, folder) for folder in folders)]


def _list_folders_above(paths: Iterable[str], folders: Sequence[str]) -> list[str]:
    """Return the folders between some folders and paths below these."""
    return [each for path in paths for folder in folders for each in iterate_folders_above(path, folder)]


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
    return [each for each in names if not os.path.lexists(each) or is_sandbox_placeholder(each)]


def is_sandbox_placeholder(path: str) -> bool:
    """Return True if a path is an empty placeholder that bubblewrap created to mount over, in use or left over.

    That is an empty folder with a name of the configuration.
    """
    return is_real_folder(path) and os.path.basename(path) in CONFIG_NAMES and not _list_folder(path)


def remove_placeholders(paths: Iterable[str], files: Iterable[str] = ()) -> None:
    """Remove the empty folders, and files, that bubblewrap created to mount over, unless they have content now."""
    for path in sorted(paths, key=len, reverse=True):  # what is below first
        with contextlib.suppress(OSError):
            os.rmdir(path)  # fails unless it is empty
    for path in files:  # a log comes after its database
        with contextlib.suppress(OSError):
            if not os.lstat(path).st_size and not _is_log_of_database(path):
                os.unlink(path)


def _is_log_of_database(path: str) -> bool:
    """Return True for a log of SQLite beside its database: a process may have it open while it is empty."""
    database, _, ending = path.rpartition("-")
    return ending in {"wal", "shm"} and os.path.lexists(database)


def is_real_folder(path: str) -> bool:
    """Return True if a path is a folder, and not a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def find_home_secrets() -> list[str]:
    """Return paths in the user's home folders that often contain secrets, such as `.ssh`, and Perdure's own folder."""
    found: list[str] = []
    places: list[str] = []
    for home in find_own_home_folders():
        places.append(os.path.join(home, ".perdure"))
        found += find_secrets(home, depth=1)
        found += find_secrets(os.path.join(home, ".config"), depth=1, above=(".config",))
        if not may_be_hidden(home):  # as a whole
            dotted = [each for each in _list_folder(home) if each.name.startswith(".")]
            found += [each.path for each in dotted if each.is_file(follow_symlinks=False)]
    with contextlib.suppress(ConfigError):  # then it has no such folder
        places.append(get_perdure_home())
    found += [real for each in places if is_real_folder(real := os.path.realpath(each))]
    return list(dict.fromkeys(found))


def find_own_home_folders() -> list[str]:
    """Return the home folders of the current user: the one in HOME, and the one in the system's user database."""
    import pwd  # which Windows does not have

    homes = [get_user_home()]
    with contextlib.suppress(KeyError, OSError):
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    return [each for each in dict.fromkeys(map(os.path.realpath, homes)) if each != os.devnull]


def find_hidden_secrets(root: str) -> list[str]:
    """Return the files and folders of a working folder that a read-only sandbox hides: their names suggest secrets."""
    return [path for path, options in choose_covers(root, find_all_secrets(root), make_covers()) if options]


def find_all_secrets(root: str) -> list[str]:
    """Return files and folders whose names suggest secrets, at any depth of a working folder, without `.git`.

    Of a folder that is too large to look at as a whole, the upper levels are looked at.
    """
    return find_secrets(root, depth=_MOST_DEPTH, most_entries=MOST_ENTRIES)[:_MOST_COVERS]


def _list_ignore_files_above(root: str) -> list[str]:
    """Return the ignore files in the folders above a working folder, which ripgrep would read."""
    steps = root.split("/")
    above = ["/".join(steps[:count]) or "/" for count in range(1, len(steps))]
    paths = [os.path.join(folder, name) for folder in above for name in IGNORE_FILES]
    return [each for each in paths if os.path.lexists(each) and not os.path.islink(each) and not os.path.isdir(each)]


def find_secrets(
    root: str, *, depth: int = 2, above: tuple[str, ...] = (), most_entries: int | None = None
) -> list[str]:
    """Return files and folders whose names suggest secrets, in the top `depth` levels of a folder, without `.git`."""
    found: list[str] = []
    most = _MOST_ENTRIES if most_entries is None else most_entries
    linked = {inode for _, inode in list_linked_secrets()}
    level = [(root, above)]
    seen = 0
    for _ in range(depth):
        below: list[tuple[str, tuple[str, ...]]] = []
        for folder, names in level:
            if seen > most:
                return found
            for entry in _list_folder(folder):
                seen += 1
                if entry.is_symlink() or entry.name == ".git":
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                is_linked = entry.inode() in linked and is_link_to_secret(entry.stat(follow_symlinks=False))
                if is_linked or _SECRET_NAMES.find((*names, entry.name), is_folder=is_folder):
                    found.append(entry.path)
                elif is_folder:
                    below.append((entry.path, (*names, entry.name)))
        if not below:
            break
        level = below
    return found


def _list_folder(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda each: each.name)
    except OSError:
        return []
