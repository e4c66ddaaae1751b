"""The tools `glob` and `grep`: find files by their paths, and lines by a regular expression."""

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from perdure.core.error import ToolError
from perdure.core.model_and_tool_wrappers import before
from perdure.core.path_target import PathTarget
from perdure.core.tool import Tool, ToolContext, tool

from .file_backend import (
    FileReadBackend,
    FileRefused,
    build_early_path_check,
    call_backend_method,
    check_backend,
    get_permitted_path,
    may_show_path,
)
from .file_search_backend import MOST_RESULTS, GlobQuery, SearchBackend, SearchMatch, SearchQuery, SearchResult
from .glob_pattern import compile_glob
from .portable_regex import PortableRegex

MOST_LINE_CHARACTERS: Final = 500
"""The most characters of a line that are returned."""
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
            found = await call_backend_method(
                context, search.find_files, get_permitted_path(context), GlobQuery(pattern)
            )
        except FileRefused as error:
            raise ToolError(f"{path!r} cannot be searched: {error}") from error
        paths = filter_shown_paths(context, files, found.paths)
        more = [f"[more than {MOST_RESULTS} files: use a narrower pattern or path]"] if found.is_truncated else []
        return "\n".join([*[each for each in found.paths if each in paths], *more]) or "(no files)"

    return before(glob, build_early_path_check(files, "searched", is_folder=True))


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
        query = SearchQuery(parsed.text, ignore_case=parsed.ignore_case, glob=glob, context_lines=lines)
        try:
            found = await call_backend_method(context, search.search_lines, get_permitted_path(context), query)
        except FileRefused as error:
            raise ToolError(f"{path!r} cannot be searched: {error}") from error
        shown = filter_shown_paths(context, files, [each.path for each in found.matches])
        kept = tuple([each for each in found.matches if each.path in shown])
        return format_matches(SearchResult(kept, found.is_truncated), output)

    return before(grep, build_early_path_check(files, "searched", is_folder=True))


def filter_shown_paths(context: ToolContext[Any], files: FileReadBackend, paths: Iterable[str]) -> set[str]:
    """Return those of the found paths that may be shown: no permission rule denies them, or asks about them."""
    return {each for each in dict.fromkeys(paths) if may_show_path(context, files, each)}


def format_matches(found: SearchResult, output: str = "lines") -> str:
    """Format matches as text: the lines, the paths of the files, or the number of matches in each file."""
    if output == "lines":
        shown = _format_lines(found.matches)
    else:
        counts: dict[str, int] = {}
        for each in found.matches:
            counts[each.path] = counts.get(each.path, 0) + 1
        shown = [path if output == "files" else f"{path}:{count}" for path, count in counts.items()]
    if found.is_truncated:
        shown.append(f"[more than {MOST_RESULTS} matches: use a narrower pattern, path or glob]")
    return "\n".join(shown) or "(no matches)"


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
        text = each.text if len(each.text) <= MOST_LINE_CHARACTERS else f"{each.text[:MOST_LINE_CHARACTERS]}…"
        shown.append(f"{each.path}{mark}{each.line}{mark} {text}")
        before_it = each
    return shown


def _folder_target(files: FileReadBackend) -> Any:
    def target(arguments: dict[str, Any]) -> PathTarget:
        return files.resolve(arguments.get("path", "."))

    return target


def _check_backends(owner: str, files: FileReadBackend, search: SearchBackend) -> None:
    check_backend(owner, files, ("resolve", "check", "show"))
    check_backend(owner, search, ("search_lines", "find_files"))
