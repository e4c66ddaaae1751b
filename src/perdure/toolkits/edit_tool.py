"""The tool `edit`: replace text in a file that the model has read, also if it has not copied the text exactly."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from perdure.core.error import ToolError
from perdure.core.model_and_tool_wrappers import before
from perdure.core.path_target import PathTarget
from perdure.core.tool import Tool, ToolContext, ToolOutput, tool
from perdure.files.protected_names import add_caution

from .edit_ladder import EditResult, TextEdit, apply_edit
from .file_backend import (
    FileWriteBackend,
    build_early_path_check,
    call_backend_method,
    check_backend,
    get_permitted_path,
)
from .file_page import decode_text
from .file_reads_and_changes import FileAccessRecord, FileSnapshotBackend, read_record, require_read_and_unchanged
from .logged_file_writer import FileWriter, read_file
from .text_origin import labelled_by_origin

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
