"""The paths in home folders and folders for temporary files that a sandboxed command sees, read-only."""

# ruff: noqa: PTH112, PTH113, PTH114, PTH117, PTH118, PTH119, PTH120, PTH208 - before every command, where pathlib would cost milliseconds
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from perdure._io.files.head import UnreadableFile, read_file_head

TEMPORARY_FOLDERS: Final = ("/run", "/var/tmp", "/tmp")  # noqa: S108 - these are hidden, nothing is written there
"""Folders where other programs listen on sockets, or keep files of other users."""
HOME_FOLDERS: Final = ("/home", "/root")
DRIVES: Final = "/mnt"
"""Where Linux on Windows mounts the drives, by their letters."""
TOOLCHAINS: Final = (
    # Python
    ".pyenv", ".local/share/uv/python", ".local/share/uv/tools", ".local/share/pipx/venvs", ".local/pipx/venvs",
    ".local/lib", ".local/share/virtualenvs", ".virtualenvs", ".cache/pip", "miniconda3", "anaconda3", "miniforge3",
    "mambaforge",
    # JavaScript
    ".nvm", ".volta", ".fnm", ".local/share/fnm", ".bun/bin", ".deno/bin", ".npm/_cacache", ".cache/ms-playwright",
    ".cache/puppeteer",
    # Rust, Go, C
    ".rustup", ".cargo/bin", ".cargo/registry", ".cargo/git", "go/pkg", "go/bin",
    # Java and .NET
    ".m2/repository", ".m2/wrapper", ".gradle/wrapper", ".gradle/jdks", ".jdks", ".sdkman/candidates", ".dotnet",
    ".nuget/packages",
    # others
    ".local/bin", ".asdf", ".local/share/mise/installs", ".rbenv", ".opam", ".ghcup", ".juliaup", ".pub-cache/hosted",
)  # fmt: skip
"""Folders of a home that commands can read: programs, libraries and what was downloaded of them; no settings."""
_SYSTEM_FOLDERS: Final = frozenset({"bin", "boot", "dev", "etc", "lib", "lib64", "opt", "proc", "sbin", "sys", "usr"})
_MOST_LINE_BYTES: Final = 4096


def list_hidden_folders(homes: Iterable[str]) -> list[str]:
    """Return the folders of which a command sees nothing but what is shown on purpose.

    Of a home that is a folder of the system, such as `/` in many containers, it is the folders whose names begin with a
    dot, with the settings of programs.
    """
    wanted = [each for each in (*TEMPORARY_FOLDERS, *map(os.path.realpath, HOME_FOLDERS)) if may_be_hidden(each)]
    wanted += _list_windows_homes()
    for home in homes:
        wanted += [home] if may_be_hidden(home) else _list_dot_folders(home)
    found = [each for each in wanted if os.path.isdir(each) and not os.path.islink(each)]
    return [each for each in dict.fromkeys(found) if not any(is_below(each, other) for other in found)]


def list_shown_folders(root: str, hidden: Sequence[str], homes: Sequence[str]) -> list[str]:
    """Return the folders inside of hidden ones that commands need: toolchains, the interpreter, the repository.

    None of them is named by a file that a command could have written.
    """
    kept = {each for home in homes for each in (home, *[os.path.join(home, name) for name in (".config", ".local")])}
    found = [os.path.join(home, name) for home in homes for name in TOOLCHAINS]
    found += [os.path.realpath(each) for each in (sys.prefix, sys.base_prefix)]
    found += [*_list_program_folders(), *_list_active_environment(root), *find_repository_folders(root)]
    return [
        each
        for each in dict.fromkeys(found)
        if any(is_below(each, other) for other in hidden)
        and not any(each == other or is_below(other, each) for other in (*kept, *hidden))
        and not is_below(f"{each}/x", root)
        and os.path.isdir(each)
    ]


def find_repository_folders(root: str) -> Iterator[str]:
    """Yield the folders of the repository that a working folder belongs to, where they are outside of it.

    That is the work tree around it, or the repository of a linked work tree. A command can write the file `.git` that
    names the latter; so the repository has to name the work tree, too.
    """
    folder = os.path.dirname(root)
    while folder != os.path.dirname(folder) and not os.path.lexists(os.path.join(root, ".git")):
        if os.path.isdir(os.path.join(folder, ".git")):
            yield folder
            return
        folder = os.path.dirname(folder)
    link = os.path.join(root, ".git")
    if os.path.isfile(link) and not os.path.islink(link):
        entry = os.path.realpath(os.path.join(root, _read_line(link).removeprefix("gitdir:").strip()))
        worktrees = os.path.dirname(entry)
        if os.path.basename(worktrees) == "worktrees" and _read_line(os.path.join(entry, "gitdir")).strip() == link:
            yield os.path.dirname(worktrees)


def is_below(path: str, folder: str) -> bool:
    """Return True if a path lies inside a folder, and is not the folder itself."""
    return path.startswith(f"{folder.rstrip('/')}/")


def may_be_hidden(folder: str) -> bool:
    """Return False for a folder of the system, without which programs would not work."""
    steps = folder.split("/")[1:]
    return steps[0] not in _SYSTEM_FOLDERS and folder not in {"/", "/var", "/srv", "/mnt"}


def _list_windows_homes() -> list[str]:
    try:
        return [os.path.join(DRIVES, each, "Users") for each in os.listdir(DRIVES) if len(each) == 1]
    except OSError:
        return []


def _list_dot_folders(home: str) -> list[str]:
    try:
        return [os.path.join(home, each) for each in os.listdir(home) if each.startswith(".")]
    except OSError:
        return []


def _list_program_folders() -> Iterator[str]:
    for each in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(each):
            yield os.path.realpath(each)


def _list_active_environment(root: str) -> Iterator[str]:
    """Yield the folder of the active virtual environment, and that of its interpreter, unless it is in the root."""
    given = os.environ.get("VIRTUAL_ENV", "")
    folder = os.path.realpath(given) if os.path.isabs(given) else ""
    settings = os.path.join(folder, "pyvenv.cfg")
    if not folder or is_below(settings, root) or not os.path.isfile(settings):
        return
    yield folder
    interpreter = os.path.realpath(os.path.join(folder, "bin", "python"))
    prefix = os.path.dirname(os.path.dirname(interpreter))
    if not is_below(interpreter, root) and os.path.isdir(os.path.join(prefix, "lib")):
        yield prefix


def _read_line(path: str) -> str:
    try:
        return read_file_head(path, _MOST_LINE_BYTES).data.decode("utf-8", "surrogateescape")
    except UnreadableFile:
        return ""
