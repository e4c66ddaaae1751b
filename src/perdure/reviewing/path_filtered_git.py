"""A git backend that shows only some of the changed files, by patterns such as `src/**` or `*.lock`."""

import asyncio
import re
from collections.abc import Sequence
from inspect import isawaitable

from perdure.core.error import ConfigError, ToolError
from perdure.toolkits.git_tools import EXCLUDED, MOST_BYTES, GitBackend, GitOutput
from perdure.toolkits.glob_pattern import compile_glob

MOST_LISTED_BYTES = 4 * 1024 * 1024
"""The most bytes of names of changed files."""


class PathFilteredGit:
    """A `GitBackend` that leaves files out of diffs: those that match no `include`, or an `exclude` pattern."""

    def __init__(self, git: GitBackend, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        """Show the diffs of `git` without some files. Raises `ConfigError` for what is no pattern."""
        self._git = git
        self._include = [_compile("include", each) for each in include]
        self._exclude = [_compile("exclude", each) for each in exclude]

    async def run_git(self, arguments: Sequence[str], *, given: str = "", max_bytes: int = MOST_BYTES) -> GitOutput:
        """Run a git command; a diff leaves out the files that the patterns leave out."""
        words = list(arguments)
        if words[0] in {"diff", "show"} and (self._include or self._exclude):
            words += [f"{EXCLUDED}{each}" for each in await self._list_left_out(words)]
        return await _call(self._git, words, given=given, max_bytes=max_bytes)

    def is_shown(self, path: str) -> bool:
        """Return True if the patterns leave a file in."""
        is_included = not self._include or any(each.fullmatch(path) for each in self._include)
        return is_included and not any(each.fullmatch(path) for each in self._exclude)

    async def list_changed_files(self, base: str) -> list[str]:
        """Return the paths of the files that the branch changes, except those that the patterns leave out.

        Raises `ToolError` if git fails, as for a base that does not exist.
        """
        names = await self._list_names(["diff", f"{base}...HEAD", "--", "."])
        return [each for each in names if self.is_shown(each)]

    async def _list_left_out(self, words: Sequence[str]) -> list[str]:
        return [each for each in await self._list_names(words) if not self.is_shown(each)]

    async def _list_names(self, words: Sequence[str]) -> list[str]:
        split = list(words).index("--")
        form = ["--format="] if words[0] == "show" else []
        listing = [*words[:split], "-z", "--name-only", "--no-renames", *form, *words[split:]]
        done = await _call(self._git, listing, max_bytes=MOST_LISTED_BYTES)
        if done.exit_code or done.is_truncated:
            raise ToolError(f"git failed: {done.problem.strip()[-500:] or 'too many files have changed'}")
        return sorted({each.strip("\n") for each in done.text.split("\0")} - {""})


def _compile(option: str, pattern: str) -> "re.Pattern[str]":
    try:
        return compile_glob(pattern)
    except ToolError as error:
        raise ConfigError(f"BranchReviewer({option}=…): {error}") from error


async def _call(git: GitBackend, words: Sequence[str], *, given: str = "", max_bytes: int = MOST_BYTES) -> GitOutput:
    """Run a git command of a backend: an async method directly, a plain one on a thread."""
    done = await asyncio.to_thread(git.run_git, words, given=given, max_bytes=max_bytes)
    return await done if isawaitable(done) else done
