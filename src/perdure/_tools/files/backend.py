"""Protocols of the backends that file tools read and write through, and functions to check and call a backend.

The tools in this package say what is done; a backend says where. `perdure.hosts.LocalFiles` is a folder of this
machine, `perdure.testing.MemoryFiles` keeps files in memory. A method may be a plain function, which runs on a thread,
or an async one.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from perdure._core.permission.targets.path import PathTarget
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Skip
from perdure._core.tools.worker.threads import THREAD_POOL
from perdure._core.values.error import ConfigError, ToolError
from perdure._io.files.confined_folder import FileRefused
from perdure._io.files.jail import FileChanged, FileContent, FolderEntry

__all__ = ["FileChanged", "FileContent", "FileReadBackend", "FileRefused", "FileWriteBackend", "FolderEntry"]

P = ParamSpec("P")
T = TypeVar("T")


class FileReadBackend(Protocol):
    """Protocol of a backend that lets tools read its files and list its folders.

    Methods raise `FileRefused`, with the reason as part of a sentence.
    """

    @property
    def root(self) -> str:
        """The folder that paths are relative to, as an absolute path."""
        ...

    def resolve(self, path: str) -> PathTarget:
        """Return the real path that a path leads to: the object that is shown, checked and used. May lie outside."""
        ...

    def check(self, target: PathTarget, *, write: bool = False, is_folder: bool = False) -> Any:
        """Raise `FileRefused` if the file, or folder, may not be read or written, whatever its content is."""
        ...

    def show(self, target: PathTarget) -> str:
        """Return the path of a target as the model reads and writes it."""
        ...

    def read_file(self, target: PathTarget) -> FileContent | Awaitable[FileContent]:
        """Return the content of a regular file."""
        ...

    def list_folder(self, target: PathTarget) -> Sequence[FolderEntry] | Awaitable[Sequence[FolderEntry]]:
        """Return the entries of a folder, sorted by name."""
        ...


class FileWriteBackend(FileReadBackend, Protocol):
    """Protocol of a backend that lets tools read and write its files."""

    def write_file(
        self, target: PathTarget, data: bytes, *, expected: str | None = None
    ) -> FileContent | Awaitable[FileContent]:
        """Create or replace a file in one step. Raises `FileChanged` unless it has the `expected` digest (empty: none).

        An `expected` of `None` replaces whatever is there.
        """
        ...


def may_show_path(context: ToolContext[Any], files: "FileReadBackend", path: str) -> bool:
    """Return True if a tool may show a path that it has found: no permission rule denies it, or asks about it."""
    if not context.hides_paths:
        return True
    try:
        return context.may_show(files.resolve(path))
    except FileRefused:
        return False


def build_path_filter(context: ToolContext[Any], files: "FileReadBackend") -> Callable[[str], bool] | None:
    """Return a function that says whether a tool may show a path; `None` if no permission rule hides any."""
    return (lambda path: may_show_path(context, files, path)) if context.hides_paths else None


async def call_backend_method(
    context: ToolContext[Any], function: Callable[P, T | Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a method of a tool's backend: directly if it is async, else on a thread.

    The thread first confirms that the session's lease is still valid.
    """
    if inspect.iscoroutinefunction(function):
        return await cast("Awaitable[T]", function(*args, **kwargs))

    def call_unless_fenced() -> T | Awaitable[T]:
        context.confirm_lease_on_thread()
        return function(*args, **kwargs)

    value = await THREAD_POOL.run(call_unless_fenced, (), {}, session_id=context.session_id)
    return cast("T", await value if inspect.isawaitable(value) else value)


def get_permitted_path(context: ToolContext[Any]) -> PathTarget:
    """Return the file path that a tool call has permission for. Raises `ToolError` if the call has none."""
    try:
        target = context.target
    except FileRefused as error:
        raise ToolError(f"that path cannot be used: {error}") from error
    if not isinstance(target, PathTarget):
        raise ToolError("the call has no path")
    return target


def build_early_path_check(
    backend: FileReadBackend, verb: str, *, write: bool = False, is_folder: bool = False
) -> Callable[[Any, dict[str, Any]], Skip | None]:
    """Return a `prepare` hook that rejects paths which a backend would refuse, before the user is asked for permission.

    The effect checks again, on the target that the person saw.
    """

    def check_path(_call: Any, arguments: dict[str, Any]) -> Skip | None:
        path = arguments.get("path")
        if not isinstance(path, str):
            return None  # the validation says what is wrong with it
        try:
            backend.check(backend.resolve(path), write=write, is_folder=is_folder)
        except FileRefused as error:
            return Skip(f"{path!r} cannot be {verb}: {error}")
        return None

    return check_path


def check_backend(owner: str, backend: object, methods: Sequence[str]) -> None:
    """Raise `ConfigError` unless an object has these methods, which a tool's backend needs."""
    missing = [each for each in methods if not callable(getattr(backend, each, None))]
    if isinstance(backend, type) or missing:
        raise ConfigError(
            f"{owner}({backend!r}): give a backend with {', '.join(missing or methods)}, such as LocalFiles('.')"
        )
