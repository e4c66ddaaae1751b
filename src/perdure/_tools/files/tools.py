"""The tools `read`, `list`, `write` and `edit`, over any file backend; each change is logged before it is made."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from msgspec import Struct

from perdure._core.permission.targets.path import PathTarget
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool, ToolOutput, tool
from perdure._core.tools.wrappers import before
from perdure._core.values.error import ToolError
from perdure._core.values.message import Image, Text
from perdure._io.files.confined_folder import FileRefused
from perdure._io.files.jail import FileChanged, FileContent, FolderEntry, compute_digest
from perdure._io.files.protected import add_caution
from perdure._tools.origin import labelled_by_origin, record_write

from .backend import (
    FileReadBackend,
    FileWriteBackend,
    build_early_path_check,
    call_backend_method,
    check_backend,
    get_permitted_path,
    may_show_path,
)
from .edits import EditResult, TextEdit, apply_edit
from .records import (
    NO_FILE,
    FileAccessRecord,
    FileSnapshotBackend,
    read_record,
    record_change,
    record_read,
    require_read_and_unchanged,
)

MOST_LINES: Final = 2_000
"""The most lines of a page."""
MOST_BYTES: Final = 80 * 1024
"""The most bytes of a page."""
_IMAGE_BEGINNINGS: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def detect_image_type(data: bytes) -> str:
    """Return the media type of an image by its first bytes; empty if it is not an image that models accept."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begin, kind in _IMAGE_BEGINNINGS.items() if data.startswith(begin)), "")


def decode_text(data: bytes, path: str) -> str:
    """Decode the content of a text file for an edit. Raises `ToolError` unless it is UTF-8 text."""
    if b"\0" in data:
        raise ToolError(f"{path!r} is not a text file")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ToolError(f"{path!r} is not UTF-8 text (byte {error.start}), and is not edited") from error


def format_page(data: bytes, path: str, offset: int, limit: int, max_bytes: int, *, line_numbers: bool) -> str:
    """Format a page of lines from a text file, with a note if there are more. Raises `ToolError` if it is not text."""
    if b"\0" in data:
        raise ToolError(f"{path!r} is not a text file")
    if offset < 1 or limit < 1:
        raise ToolError(f"offset={offset}, limit={limit}: lines are counted from 1, and a page has at least one")
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()  # the end of the last line, and no line
    total = len(lines)
    if offset > max(total, 1):
        return f"[The file has {total:,} lines; there is none at offset {offset:,}.]"
    page = _take_lines(lines[offset - 1 : offset - 1 + min(limit, MOST_LINES)], max_bytes)
    last = offset + len(page) - 1
    shown = [f"{number}: {line}" for number, line in enumerate(page, offset)] if line_numbers else page
    notes: list[str] = []
    if page and len(page[-1]) < len(lines[last - 1]):
        notes.append(f"[Line {last} is cut off: it has {len(lines[last - 1]):,} characters.]")
    if offset > 1 or last < total:
        more = f" Use offset={last + 1} to continue." if last < total else ""
        notes.append(f"[Showing lines {offset}-{last} of {total}.{more}]")
    if "\ufffd" in text and b"\xef\xbf\xbd" not in data:
        notes.append("[The file is not UTF-8: \ufffd stands for bytes that are no text.]")
    return "\n".join([*shown, *notes]) or "(empty file)"


def _take_lines(lines: list[str], max_bytes: int) -> list[str]:
    """Return as many whole lines as fit; of a first line that does not fit, its beginning."""
    taken: list[str] = []
    left = max_bytes
    for line in lines:
        size = len(line.encode("utf-8", "replace")) + 1
        if size > left:
            break
        taken.append(line)
        left -= size
    return taken if taken or not lines else [lines[0].encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")]


async def read_file(
    context: ToolContext[Any], files: FileReadBackend, target: PathTarget, *, verb: str = "read"
) -> FileContent:
    """Read a file from a tool's backend. Raises `ToolError` with the reason if it cannot be read."""
    try:
        return await call_backend_method(context, files.read_file, target)
    except FileRefused as error:
        raise ToolError(f"{show_path(files, target)!r} cannot be {verb}: {error}") from error


async def read_file_if_there(
    context: ToolContext[Any], files: FileReadBackend, target: PathTarget
) -> FileContent | None:
    """Return the content of a file that a tool is about to write; `None` if the file does not exist."""
    try:
        return await read_file(context, files, target, verb="written")
    except ToolError as error:
        refused = error.__cause__
        if refused is not None and isinstance(refused.__cause__, FileNotFoundError):
            return None
        raise


class FileWriter(Struct, frozen=True):
    """Writer of a backend's files for tool calls: it logs each change first, and saves snapshots if enabled."""

    files: FileWriteBackend
    snapshots: FileSnapshotBackend | None = None

    async def write(
        self, context: ToolContext[Any], target: PathTarget, found: FileContent | None, data: bytes
    ) -> None:
        """Replace `found`, the content that the file has now (`None` for no file), with other bytes.

        The snapshots have both contents, and the log has their digests, before the file changes. So has the record of
        files that follow from text of others, if the model has seen any.
        """
        shown = self.files.show(target)
        if self.snapshots is not None:
            for each in (data,) if found is None else (found.data, data):
                await call_backend_method(context, self.snapshots.save, each)
        await record_write(context, self.files, target.path)
        await record_change(context, shown, self.files.root, found, compute_digest(data))
        expected = NO_FILE if found is None else found.digest
        try:
            await call_backend_method(context, self.files.write_file, target, data, expected=expected)
        except FileChanged as error:
            raise ToolError(f"{shown!r} was not changed: {error}; read it again, then repeat the change") from error
        except FileRefused as error:
            raise ToolError(f"{shown!r} cannot be written: {error}") from error


def show_path(files: FileReadBackend, target: PathTarget) -> str:
    """Return a file's path in the form shown to the model; the absolute path if it is outside the root folder."""
    try:
        return files.show(target)
    except FileRefused:
        return target.path


_CONTEXT_LINES: Final = 2
_MOST_SHOWN_LINES: Final = 24
_MOST_SHOWN_CHARACTERS: Final = 2_000
_PROMPT: Final = (
    "Change files with `edit`, after `read`: copy old_string exactly, with enough lines around it to be unique."
)


def edit_tool(files: FileWriteBackend, *, snapshots: FileSnapshotBackend | None = None) -> Tool[..., Any]:
    """Return the tool `edit`, which replaces text in the files of a backend and needs permission.

    With `snapshots`, the content of each file before and after a change is stored, so that it can be undone.
    """
    check_backend("edit_tool", files, ("resolve", "check", "show", "read_file", "write_file"))
    writer = FileWriter(files, snapshots)

    def target(arguments: dict[str, Any]) -> PathTarget:
        return add_caution(files.resolve(arguments["path"]))

    @tool(
        effect="idempotent",
        permission=True,
        action="write",
        target=target,
        parallel=False,
        credentials=False,
        prompt=_PROMPT,
    )
    async def edit(  # noqa: PLR0917 - a model gives them by name
        path: Annotated[str, "Path of the file, relative to the working folder."],
        context: ToolContext[Any],
        old_string: Annotated[str, "The text to replace, exactly as in the file, and unique in it."] = "",
        new_string: Annotated[str, "The text to put in its place."] = "",
        replace_all: Annotated[bool, "Replace every occurrence."] = False,  # noqa: FBT002 - a model gives it by name
        edits: Annotated[Sequence[TextEdit], "Several replacements, in order, instead of one: all or none."] = (),
    ) -> ToolOutput:
        """Replace text in a file that you have read. Give old_string and new_string, or a list of edits."""
        if edits and (old_string or new_string):
            raise ToolError("give either old_string and new_string, or edits, not both")
        steps = [*edits] or [TextEdit(old_string, new_string, replace_all)]
        wanted = get_permitted_path(context)
        found, shown = await read_file(context, files, wanted, verb="edited"), files.show(wanted)
        record = read_record(context, shown)
        if record is not None and _is_own_change(record, context) and record.digest == found.digest:
            return ToolOutput(f"edited {shown}")  # this very call has changed the file, before a crash
        if record is None or not _is_own_change(record, context) or record.before != found.digest:
            require_read_and_unchanged(record, found, path)
        done = await call_backend_method(context, _apply_steps, decode_text(found.data, path), steps)
        data = done[-1].text.encode()
        await writer.write(context, wanted, found, data)
        return ToolOutput(_describe_edits(shown, done, len(data)), summary=f"(edited {shown})")

    return before(labelled_by_origin(edit, files), build_early_path_check(files, "edited", write=True))


def _is_own_change(record: FileAccessRecord, context: ToolContext[Any]) -> bool:
    """Return True if an earlier attempt at this call has stored that it changes the file."""
    return record.before is not None and record.call_id == context.call_id


def _apply_steps(text: str, steps: Sequence[TextEdit]) -> list[EditResult]:
    """Apply steps one after another. Raises the refusal of the first that cannot be applied, with its number."""
    done: list[EditResult] = []
    for number, step in enumerate(steps, 1):
        try:
            done.append(apply_edit(done[-1].text if done else text, step))
        except ToolError as error:
            if len(steps) == 1:
                raise
            raise ToolError(f"edit {number} of {len(steps)}: {error} Nothing was changed.") from error
    return done


def _describe_edits(shown: str, done: Sequence[EditResult], size: int) -> str:
    count = sum(each.places for each in done)
    rungs = [each.rung for each in done if each.rung != "exact"]
    places = "1 place" if count == 1 else f"{count} places"
    how = f" (found by {'; '.join(dict.fromkeys(rungs))})" if rungs else ""
    return f"edited {shown}: {places}{how}, {size:,} bytes\n{_show_lines(done[-1])}"


def _show_lines(edited: EditResult) -> str:
    """Return the lines around the first change, with their numbers, so that the model need not read the file again."""
    lines = edited.text.split("\n")
    start = max(1, edited.first_line - _CONTEXT_LINES)
    end = min(len(lines), edited.last_line + _CONTEXT_LINES, start + _MOST_SHOWN_LINES - 1)
    shown = "\n".join([f"{number}: {lines[number - 1].rstrip(chr(13))}" for number in range(start, end + 1)])
    return shown if len(shown) <= _MOST_SHOWN_CHARACTERS else f"{shown[:_MOST_SHOWN_CHARACTERS]}…"


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
