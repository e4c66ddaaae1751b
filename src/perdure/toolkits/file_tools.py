"""The tools `read`, `list` and `write`, over any `FileReadBackend` or `FileWriteBackend`.

Each call resolves its path once, to the `PathTarget` that rules match and people see; the effect works on that object.
A file is replaced only if it is as the model has last seen it. Writing asks for permission; reading does not.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from perdure.core.error import ToolError
from perdure.core.message import Image, Text
from perdure.core.model_and_tool_wrappers import before
from perdure.core.path_target import PathTarget
from perdure.core.tool import Tool, ToolContext, ToolOutput, tool
from perdure.files.protected_names import add_caution

from .file_backend import (
    FileReadBackend,
    FileRefused,
    FileWriteBackend,
    FolderEntry,
    build_early_path_check,
    call_backend_method,
    check_backend,
    get_permitted_path,
    may_show_path,
)
from .file_page import MOST_BYTES, MOST_LINES, detect_image_type, format_page
from .file_reads_and_changes import FileSnapshotBackend, read_record, record_read, require_read_and_unchanged
from .logged_file_writer import FileWriter, read_file, read_file_if_there
from .text_origin import labelled_by_origin

MOST_LISTED: Final = 500
"""The most entries of a folder that a call returns."""


def read_tool(files: FileReadBackend) -> Tool[..., Any]:
    """Return the tool `read`, which returns pages of text files and images of a backend."""
    check_backend("read_tool", files, ("resolve", "check", "show", "read_file"))

    def target(arguments: dict[str, Any]) -> PathTarget:
        return files.resolve(arguments["path"])

    @tool(effect="read", target=target)
    async def read(
        path: Annotated[str, "Path of the file, relative to the working folder."],
        context: ToolContext[Any],
        offset: Annotated[int, "Number of the first line, from 1."] = 1,
        limit: Annotated[int, "The most lines."] = MOST_LINES,
        line_numbers: Annotated[bool, "Put the number in front of each line."] = False,  # noqa: FBT002 - a model gives it by name
    ) -> ToolOutput:
        """Read a text file, in pages of up to 2,000 lines, or look at an image (PNG, JPEG, GIF, WebP)."""
        wanted = get_permitted_path(context)
        found, shown = await read_file(context, files, wanted), files.show(wanted)
        if media_type := detect_image_type(found.data):
            content: Any = [
                Text(f"{shown} ({media_type}, {len(found.data):,} bytes)"),
                Image(data=found.data, media_type=media_type, name=shown),
            ]
        else:
            content = format_page(found.data, path, offset, limit, MOST_BYTES, line_numbers=line_numbers)
        await record_read(context, shown, found.digest)
        return ToolOutput(content, summary=f"(read {shown}: {len(found.data):,} bytes)")

    return before(labelled_by_origin(read, files), build_early_path_check(files, "read"))


def list_tool(files: FileReadBackend) -> Tool[..., Any]:
    """Return the tool `list`, which lists the contents of a folder."""
    check_backend("list_tool", files, ("resolve", "check", "show", "list_folder"))

    def target(arguments: dict[str, Any]) -> PathTarget:
        return files.resolve(arguments.get("path", "."))

    @tool(name="list", effect="read", target=target)
    async def list_folder(
        context: ToolContext[Any], path: Annotated[str, "Path of the folder, relative to the working folder."] = "."
    ) -> str:
        """List the files and folders in a folder: `name/` for a folder, `name@` for a link, sizes of files."""
        try:
            entries = await call_backend_method(context, files.list_folder, get_permitted_path(context))
        except FileRefused as error:
            raise ToolError(f"{path!r} cannot be listed: {error}") from error
        folder = get_permitted_path(context)
        shown = [each for each in entries if may_show_path(context, files, f"{folder.path}/{each.name}")]
        return format_entries(shown)

    return before(labelled_by_origin(list_folder, files), build_early_path_check(files, "listed", is_folder=True))


def write_tool(files: FileWriteBackend, *, snapshots: FileSnapshotBackend | None = None) -> Tool[..., Any]:
    """Return the tool `write`, which creates and replaces files of a backend and needs permission.

    With `snapshots`, the content of each file before and after a change is stored, so that it can be undone.
    """
    check_backend("write_tool", files, ("resolve", "check", "show", "read_file", "write_file"))
    writer = FileWriter(files, snapshots)

    def target(arguments: dict[str, Any]) -> PathTarget:
        return add_caution(files.resolve(arguments["path"]))

    @tool(effect="idempotent", permission=True, target=target, parallel=False, credentials=False)
    async def write(
        path: Annotated[str, "Path of the file, relative to the working folder."],
        content: Annotated[str, "The whole content of the file."],
        context: ToolContext[Any],
        overwrite: Annotated[bool, "Replace a file that exists. Read it first."] = False,  # noqa: FBT002 - a model gives it by name
    ) -> str:
        """Write a text file, with the folders above it. To change a part of a file, use `edit`."""
        wanted = get_permitted_path(context)
        found, shown = await read_file_if_there(context, files, wanted), files.show(wanted)
        data = content.encode("utf-8", "replace")
        if found is not None and found.data == data:  # also after a crash, when this call has written it before
            await record_read(context, shown, found.digest)
            return f"{shown} has this content: {len(data):,} bytes"
        if found is not None and not overwrite:
            raise ToolError(f"{path!r} exists: use `edit` to change it, or set overwrite to replace it as a whole")
        require_read_and_unchanged(read_record(context, shown), found, path)
        await writer.write(context, wanted, found, data)
        return f"{'created' if found is None else 'replaced'} {shown}: {len(data):,} bytes"

    return before(write, build_early_path_check(files, "written", write=True))


def format_entries(entries: Sequence[FolderEntry]) -> str:
    """Return the entries of a folder as lines: `name/`, `name@`, or a name and a size."""
    marks = {"folder": "/", "link": "@", "other": "?"}
    lines = [
        f"{each.name}{marks[each.kind]}" if each.kind in marks else f"{each.name}\t{each.size}"
        for each in entries[:MOST_LISTED]
    ]
    if len(entries) > MOST_LISTED:
        lines.append(f"[{len(entries) - MOST_LISTED:,} more entries: use glob]")
    return "\n".join(lines) or "(empty)"
