"""Make the index of a pack anew: one that a command wrote may give a known name to other content.

Git believes an index, and takes an object from a pack before it looks elsewhere. So a commit of the user would get
other files: in a clone, a work tree, and after `git checkout`. Git itself reads the pack, in its sandbox, outside of
any repository.
"""

# ruff: noqa: PTH118 - descriptors are the point here, and a Path has none
import contextlib
import os
from collections.abc import Generator
from typing import Final

from perdure._core.values.error import ToolError
from perdure._io.files.folder_handle import FolderHandle
from perdure._io.processes.program import run_program

from .private_copy import make_git_folder

_MOST_SECONDS: Final = 120.0
_MOST_BYTES: Final = 64 * 1024
_MOST_MEMORY_BYTES: Final = 2 * 1024**3
_SHA256_NAME: Final = len("pack-.pack") + 64
_ENVIRONMENT: Final = {
    "PATH": os.defpath,
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


@contextlib.contextmanager
def make_pack_index(pack: int, name: str) -> Generator[FolderHandle]:
    """Copy an open pack to a private folder, and make its index there; yield the folder, which has both.

    Raises `ToolError` for what is no complete pack. The folder is removed afterwards.
    """
    private = make_git_folder()
    try:
        folder = FolderHandle(private.path)
        try:
            _copy(pack, os.path.join(private.path, name))
            _run_git(private.path, name)
            yield folder
        finally:
            folder.close()
    finally:
        private.remove()


def _copy(source: int, path: str) -> None:
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(os.dup(source), "rb") as given, os.fdopen(target, "wb") as made:
        while part := given.read(1024 * 1024):
            made.write(part)


def _run_git(folder: str, name: str) -> None:
    from perdure._tools.sandbox.bubblewrap import (  # which reads git data before it
        filter_system_calls,
        find_system_program,
    )

    from .sandbox import build_git_sandbox, explain_missing_sandbox, find_git

    program = find_git(folder)
    form = ("--object-format=sha256",) if len(name) == _SHA256_NAME else ()
    limit = find_system_program("prlimit")
    limits = [limit, f"--data={_MOST_MEMORY_BYTES}", "--"] if limit is not None else []
    words = [*limits, program, "index-pack", *form, name]
    sandbox = [] if explain_missing_sandbox() else build_git_sandbox(program, folder, writable=(folder,))
    with contextlib.ExitStack() as stack:
        descriptors: tuple[int, ...] = ()
        if sandbox:
            words, descriptors = stack.enter_context(filter_system_calls([*sandbox, *words]))
        done = run_program(
            words,
            cwd=folder,
            env=_ENVIRONMENT,
            max_seconds=_MOST_SECONDS,
            max_bytes=_MOST_BYTES,
            descriptors=descriptors,
        )
    if done.exit_code:
        problem = done.stderr.decode("utf-8", "replace").strip()[-200:]
        raise ToolError(f"the command has left a pack that is damaged, and nothing was taken over: {problem}")
