"""A git backend that leaves files out: what git is asked, and what becomes of its answers."""

from collections.abc import Sequence

import pytest

from perdure import ToolError
from perdure._tools.git.tools import EXCLUDED
from perdure._work.judging.reviews.reviewer import PathFilteredGit
from perdure.hosts import GitOutput


class NotedGit:
    """A git that notes what it is asked, and answers with the names of files."""

    def __init__(self, output: GitOutput) -> None:
        self.output = output
        self.asked: list[tuple[list[str], str, int]] = []

    def run_git(self, arguments: Sequence[str], *, given: str = "", max_bytes: int = 0) -> GitOutput:
        self.asked.append((list(arguments), given, max_bytes))
        return self.output


class AsyncGit(NotedGit):
    """The same, as a coroutine."""

    async def run_git(self, arguments: Sequence[str], *, given: str = "", max_bytes: int = 0) -> GitOutput:  # type: ignore[override]
        return super().run_git(arguments, given=given, max_bytes=max_bytes)


NAMES = GitOutput(text="b.lock\0\na.py\0a.py\0src/c.py\0")


@pytest.mark.parametrize("backend", [NotedGit, AsyncGit])
async def test_the_changed_files_are_sorted_and_those_of_the_patterns(backend: type[NotedGit]) -> None:
    git = backend(NAMES)
    assert await PathFilteredGit(git).list_changed_files("main") == ["a.py", "b.lock", "src/c.py"]
    assert await PathFilteredGit(git, ["*.py"]).list_changed_files("main") == ["a.py", "src/c.py"]
    assert await PathFilteredGit(git, [], ["*.py"]).list_changed_files("main") == ["b.lock"]
    assert await PathFilteredGit(git, ["**"], ["*.lock", "src/**"]).list_changed_files("main") == ["a.py"]
    asked = ["diff", "main...HEAD", "-z", "--name-only", "--no-renames", "--", "."]
    assert git.asked == [(asked, "", 4 * 1024 * 1024)] * 4


@pytest.mark.parametrize(("command", "form"), [("diff", []), ("show", ["--format="])])
async def test_a_diff_leaves_out_the_files_that_the_patterns_leave_out(command: str, form: list[str]) -> None:
    git = NotedGit(NAMES)
    await PathFilteredGit(git, exclude=["*.lock"]).run_git([command, "HEAD", "--", "."], given="x", max_bytes=7)
    listing = [command, "HEAD", "-z", "--name-only", "--no-renames", *form, "--", "."]
    shown = [command, "HEAD", "--", ".", f"{EXCLUDED}b.lock"]
    assert git.asked == [(listing, "", 4 * 1024 * 1024), (shown, "x", 7)]


@pytest.mark.parametrize(("command", "include"), [("log", ["*.py"]), ("diff", []), ("show", [])])
async def test_other_commands_and_all_of_them_without_patterns_are_run_as_they_are(
    command: str, include: list[str]
) -> None:
    git = NotedGit(NAMES)
    assert await PathFilteredGit(git, include).run_git([command, "--", "."], max_bytes=9) is NAMES
    assert git.asked == [([command, "--", "."], "", 9)]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (GitOutput(text="", problem=" fatal: bad base\n", exit_code=128), "git failed: fatal: bad base"),
        (GitOutput(text="", problem=f"ab{'x' * 499}", exit_code=1), f"git failed: b{'x' * 499}"),
        (GitOutput(text="a.py\0", is_truncated=True), "git failed: too many files have changed"),
    ],
)
async def test_a_git_that_fails_is_an_error_that_says_why(output: GitOutput, message: str) -> None:
    with pytest.raises(ToolError) as raised:
        await PathFilteredGit(NotedGit(output)).list_changed_files("main")
    assert str(raised.value) == message
