"""Labels of what tools read in a folder, and a record of what they write there after text of others.

A backend that knows who wrote its text has an attribute `origin`, a `FolderOrigin`. The text of any other backend is
private, and nothing is recorded of it.
"""

from typing import Any

import msgspec

from perdure._core.permission.targets.command import CommandTarget
from perdure._core.permission.targets.path import PathTarget
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool
from perdure._core.tools.worker.threads import THREAD_POOL
from perdure._core.tools.wrappers import labelled
from perdure._core.values.message import merge_labels
from perdure._core.values.provenance import PRIVATE_LABEL, UNTRUSTED_LABEL, is_untrusted
from perdure._io.files.origin import FolderOrigin, is_recorded


def get_origin(backend: object) -> FolderOrigin | None:
    """Return what a backend knows of who wrote its text; `None` if it knows nothing."""
    origin = getattr(backend, "origin", None)
    return origin if isinstance(origin, FolderOrigin) else None


def list_read_labels(backend: object) -> tuple[str, ...]:
    """Return the labels that everything has which is read from a backend."""
    origin = get_origin(backend)
    return (PRIVATE_LABEL,) if origin is None else origin.labels


def list_folder_labels(backend: object) -> tuple[str, ...]:
    """Return the labels of text that may be from any file of a backend, also from what runs wrote there."""
    origin = get_origin(backend)
    written = (UNTRUSTED_LABEL,) if origin is not None and is_recorded(origin.root) else ()
    return merge_labels(list_read_labels(backend), written)


def labelled_by_origin(made: Tool[..., Any], backend: object) -> Tool[..., Any]:
    """Wrap a tool that reads from a backend so that its results have the labels of what it reads, errors included."""
    origin = get_origin(backend)
    typed = msgspec.structs.replace(made, labels=merge_labels(made.labels, list_read_labels(backend)))
    if origin is None or not origin.trusted:
        return typed
    return labelled(
        typed, lambda context: (UNTRUSTED_LABEL,) if any(map(is_recorded, _list_paths(context, origin))) else ()
    )


async def record_write(context: ToolContext[Any], backend: object, path: str, *, is_foreign: bool = False) -> None:
    """Record that a call is about to write to a path of a backend, if the model has seen text of others.

    `is_foreign` is for text that others wrote, whatever the model has seen. Raises `ToolError` if it cannot be
    recorded.
    """
    origin = get_origin(backend)
    if origin is not None and (is_foreign or is_untrusted(context.run.state.labels)):
        await THREAD_POOL.run(origin.record, (path,), {}, session_id=context.session_id)


async def record_command(context: ToolContext[Any], backend: object, *, network: bool) -> None:
    """Record that a call is about to run a command that can write, if it can write what others wrote.

    It can with the network, after text of others, and in a folder that has files with such text.
    """
    origin, target = get_origin(backend), context.target
    if origin is None or (isinstance(target, CommandTarget) and target.reads_only):
        return
    is_foreign = network or any(map(is_recorded, (origin.root, *origin.readable, *origin.writable)))
    for each in (origin.root, *origin.writable):
        await record_write(context, backend, each, is_foreign=is_foreign)


def _list_paths(context: ToolContext[Any], origin: FolderOrigin) -> tuple[str, ...]:
    """Return the paths that a call can read: that of its target, or all that a command sees."""
    everything = origin.root, *origin.readable, *origin.writable
    try:
        target = context.target
    except Exception:  # noqa: BLE001 - arguments without a target: the tool says what is wrong
        return everything
    return (target.path,) if isinstance(target, PathTarget) else everything
