"""The tools `glob` and `grep`: find files by their paths, and lines by a regular expression."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal

from perdure._core.permission.targets.path import PathTarget
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool, tool
from perdure._core.tools.wrappers import before
from perdure._core.values.error import ToolError
from perdure._io.files.confined_folder import FileRefused
from perdure._tools.files.backend import (
    FileReadBackend,
    build_early_path_check,
    build_path_filter,
    call_backend_method,
    check_backend,
    get_permitted_path,
    may_show_path,
)
from perdure._tools.origin import labelled_by_origin

from .backend import (
    MOST_RESULTS,
    GlobQuery,
    SearchBackend,
    SearchMatch,
    SearchQuery,
    SearchResult,
    SkippedPath,
)
from .patterns import PortableRegex, compile_glob

MOST_LINE_CHARACTERS: Final = 500
"""The most characters of a line that are returned."""
_MOST_SKIPPED_NAMED: Final = 10
"""The most files that are named as not shown; of the others, the number is."""
MOST_CONTEXT_LINES: Final = 10
"""The most lines around a match that are returned."""


def glob_tool(files: FileReadBackend, search: SearchBackend) -> Tool[..., Any]:
    """Return the tool `glob`, which finds files by a pattern for their paths."""
    _check_backends("glob_tool", files, search)

    @tool(effect="read", target=_folder_target(files))
    async def glob(
        pattern: Annotated[str, "Such as '*.py' (in any folder) or 'src/**/*.{ts,tsx}'."],
        context: ToolContext[Any],
        path: Annotated[str, "The folder to look in."] = ".",
    ) -> str:
        """Find files by a pattern for their paths. Files that git ignores are left out."""
        compile_glob(pattern)
        try:
            query = GlobQuery(pattern, may_show=build_path_filter(context, files))
            found = await call_backend_method(context, search.find_files, get_permitted_path(context), query)
        except FileRefused as error:
            raise ToolError(f"{path!r} cannot be searched: {error}") from error
        paths = filter_shown_paths(context, files, [*found.paths, *[each.path for each in found.skipped]])
        more = [f"[more than {MOST_RESULTS} files: use a narrower pattern or path]"] if found.is_truncated else []
        lines = [*[each for each in found.paths if each in paths], *more] or ["(no files)"]
        return "\n".join([*lines, *_format_skipped([each for each in found.skipped if each.path in paths])])

    return before(labelled_by_origin(glob, files), build_early_path_check(files, "searched", is_folder=True))


def grep_tool(files: FileReadBackend, search: SearchBackend) -> Tool[..., Any]:
    """Return the tool `grep`, which finds lines by a regular expression."""
    _check_backends("grep_tool", files, search)

    @tool(effect="read", target=_folder_target(files))
    async def grep(  # noqa: PLR0917 - a model gives them by name
        pattern: Annotated[str, "A regular expression for one line, such as 'def \\w+_tool'."],
        context: ToolContext[Any],
        path: Annotated[str, "The folder or file to search."] = ".",
        glob: Annotated[str, "Search only files whose paths match, such as '*.py'."] = "",
        ignore_case: Annotated[bool, "Take upper and lower case for the same."] = False,  # noqa: FBT002 - a model gives it by name
        context_lines: Annotated[int, "The number of lines to show before and after each match."] = 0,
        output: Annotated[Literal["lines", "files", "counts"], "What to return."] = "lines",
    ) -> str:
        """Search the contents of files. Returns `path:line: text`. Files that git ignores are left out."""
        parsed = PortableRegex(pattern, ignore_case=ignore_case)
        if glob:
            compile_glob(glob)
        lines = max(0, min(context_lines, MOST_CONTEXT_LINES)) if output == "lines" else 0
        query = SearchQuery(
            parsed.text,
            ignore_case=parsed.ignore_case,
            glob=glob,
            context_lines=lines,
            counts_only=output != "lines",
            may_show=build_path_filter(context, files),
        )
        try:
            found = await call_backend_method(context, search.search_lines, get_permitted_path(context), query)
        except FileRefused as error:
            raise ToolError(f"{path!r} cannot be searched: {error}") from error
        parts = (found.matches, found.counts, found.skipped)
        shown = filter_shown_paths(context, files, [each.path for part in parts for each in part])
        kept = SearchResult(
            tuple([each for each in found.matches if each.path in shown]),
            found.is_truncated,
            tuple([each for each in found.counts if each.path in shown]),
            tuple([each for each in found.skipped if each.path in shown]),
        )
        return format_matches(kept, output)

    return before(labelled_by_origin(grep, files), build_early_path_check(files, "searched", is_folder=True))


def filter_shown_paths(context: ToolContext[Any], files: FileReadBackend, paths: Iterable[str]) -> set[str]:
    """Return those of the found paths that may be shown: no permission rule denies them, or asks about them."""
    return {each for each in dict.fromkeys(paths) if may_show_path(context, files, each)}


def format_matches(found: SearchResult, output: str = "lines") -> str:
    """Format matches as text: the lines, the paths of the files, or the number of matches in each file."""
    if output == "lines":
        shown, kind = _format_lines(found.matches), "matches"
    else:
        counts = {each.path: each.count for each in found.counts} or _count_matches(found.matches)
        shown = [path if output == "files" else f"{path}:{count}" for path, count in counts.items()]
        kind = "files" if found.counts else "matches"
    if found.is_truncated:
        shown.append(f"[more than {MOST_RESULTS} {kind}: use a narrower pattern, path or glob]")
    return "\n".join([*(shown or ["(no matches)"]), *_format_skipped(found.skipped)])


def _count_matches(matches: Sequence[SearchMatch]) -> dict[str, int]:
    """Count the matches of each file, for a backend that returns lines although it was asked for counts."""
    counts: dict[str, int] = {}
    for each in matches:
        counts[each.path] = counts.get(each.path, 0) + 1
    return counts


def _format_skipped(skipped: Sequence[SkippedPath]) -> list[str]:
    """Return a line that names what was not searched."""
    if not skipped:
        return []
    named = "; ".join([f"{each.path}: {each.reason}" for each in skipped[:_MOST_SKIPPED_NAMED]])
    more = f"; and {len(skipped) - _MOST_SKIPPED_NAMED:,} more" if len(skipped) > _MOST_SKIPPED_NAMED else ""
    return [f"[not shown: {named}{more}]"]


def _format_lines(matches: tuple[SearchMatch, ...]) -> list[str]:
    """Return a line for each match; groups that are apart in a file are parted by `--` if there are lines around."""
    with_context = any(each.is_context for each in matches)
    shown: list[str] = []
    before_it: SearchMatch | None = None
    for each in matches:
        follows = before_it is not None and (before_it.path, before_it.line + 1) == (each.path, each.line)
        if with_context and before_it is not None and not follows:
            shown.append("--")
        mark = "-" if each.is_context else ":"
        shown.append(f"{each.path}{mark}{each.line}{mark} {_shorten_line(each.text)}")
        before_it = each
    return shown


def _shorten_line(text: str) -> str:
    """Return a line, or its beginning and how long it is."""
    if len(text) <= MOST_LINE_CHARACTERS:
        return text
    return f"{text[:MOST_LINE_CHARACTERS]}… [cut off: the line has {len(text):,} characters]"


def _folder_target(files: FileReadBackend) -> Any:
    def target(arguments: dict[str, Any]) -> PathTarget:
        return files.resolve(arguments.get("path", "."))

    return target


def _check_backends(owner: str, files: FileReadBackend, search: SearchBackend) -> None:
    check_backend(owner, files, ("resolve", "check", "show"))
    check_backend(owner, search, ("search_lines", "find_files"))
