"""The git tools over a backend that notes its commands: which words are run, and what the model is answered."""

from collections.abc import Sequence
from typing import Any

import pytest

from perdure import Agent, ConfigError, Permissions, ToolError, allow, ask, deny
from perdure._tools.git import tools as git_tools
from perdure._tools.git.tools import (
    build_commit_command,
    build_diff_command,
    build_log_command,
    build_show_command,
    check_path,
    check_revision,
)
from perdure.hosts import GitOutput
from perdure.permissions import PermissionRequest, Verdict, allow_all, deny_all, path
from perdure.testing import MemoryFiles, ScriptedModel
from perdure.tools import git_commit_tool, git_read_tools


class NotedGit:
    """A backend that answers each command with the next output, and notes what it was asked."""

    def __init__(self, *outputs: GitOutput) -> None:
        self.outputs = [*outputs]
        self.asked: list[tuple[Any, ...]] = []

    async def run_git(self, arguments: Sequence[str], **options: Any) -> GitOutput:
        self.asked.append((*arguments, options) if options else (*arguments,))
        return self.outputs.pop(0)


async def call(git: NotedGit, name: str, permission: Any = allow_all, **arguments: Any):
    files = MemoryFiles({"a.py": "a"})
    tools = [*git_read_tools(files, git), git_commit_tool(files, git)]
    return await Agent(ScriptedModel(), tools=tools, permission=permission).session().call(name, arguments)


FORM = "--format=%h %ad %an%n    %s%n%w(0,4,4)%-b"


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("git_status", {}, ["status", "--short", "--branch", "--untracked-files=normal", "--", "."]),
        ("git_diff", {}, ["diff", "HEAD", "--", "."]),
        ("git_diff", {"staged": True}, ["diff", "--cached", "--", "."]),
        ("git_diff", {"base": "main", "path": "./sub//x"}, ["diff", "main...HEAD", "--", "sub/x"]),
        ("git_log", {}, ["log", "--max-count=20", "--date=short", FORM, "HEAD", "--", "."]),
        (
            "git_log",
            {"base": "v1.0", "limit": 200, "path": "a.py"},
            ["log", "--max-count=200", "--date=short", FORM, "v1.0..HEAD", "--", "a.py"],
        ),
        ("git_log", {"limit": 1}, ["log", "--max-count=1", "--date=short", FORM, "HEAD", "--", "."]),
        ("git_show", {}, ["show", "--date=short", "HEAD^{commit}", "--", "."]),
        ("git_show", {"revision": "HEAD~2"}, ["show", "--date=short", "HEAD~2^{commit}", "--", "."]),
    ],
)
async def test_a_call_runs_these_words_and_returns_the_output(name, arguments, words):
    git = NotedGit(GitOutput("found\n\n"))
    result = await call(git, name, **arguments)
    assert (result.status, result.text, git.asked) == ("ok", "found", [(*words,)])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("git_status", "(nothing has changed)"),
        ("git_diff", "(no changes)"),
        ("git_log", "(no commits)"),
        ("git_show", "(no changes)"),
    ],
)
async def test_an_empty_output_is_told_in_words(name, text):
    assert (await call(NotedGit(GitOutput("\n")), name)).text == text


async def test_output_that_was_cut_off_says_so_also_when_git_was_stopped_for_it():
    result = await call(NotedGit(GitOutput("half", exit_code=141, is_truncated=True)), "git_diff")
    assert (result.status, result.text) == ("ok", "half\n[cut off after 102,400 bytes: ask for one file or folder]")


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (GitOutput("out", 128, "fatal: bad\n"), "git failed: fatal: bad"),
        (GitOutput(" out \n", 1), "git failed: out"),
        (GitOutput("", 3), "git failed: exit code 3"),
        (GitOutput("", 3, "x" * 600), f"git failed: {'x' * 500}"),
    ],
)
async def test_a_command_that_fails_is_an_error_with_the_end_of_what_it_said(output, text):
    result = await call(NotedGit(output), "git_status")
    assert (result.status, result.text) == ("error", text)


async def test_files_that_rules_deny_or_ask_about_are_left_out_of_what_is_shown():
    rules = Permissions(allow("*"), deny(target=path("private/**")), ask(target=path("asked.txt")))
    listed = GitOutput("a.py\0asked.txt\0\nprivate/x\0")
    git = NotedGit(listed, GitOutput("shown"))
    result = await call(git, "git_show", rules)
    listing = ("show", "--date=short", "HEAD^{commit}", "-z", "--name-only", "--no-renames", "--format=", "--", ".")
    assert result.text == "shown"
    assert git.asked == [
        (*listing, {"max_bytes": 4 * 1024 * 1024}),
        ("show", "--date=short", "HEAD^{commit}", "--", ".", ":exclude:asked.txt", ":exclude:private/x"),
    ]
    git = NotedGit(GitOutput(""), GitOutput("shown"))
    await call(git, "git_diff", rules)
    assert git.asked == [
        ("diff", "HEAD", "-z", "--name-only", "--no-renames", "--", ".", {"max_bytes": 4 * 1024 * 1024}),
        ("diff", "HEAD", "--", "."),
    ]
    git = NotedGit(GitOutput("shown"))
    await call(git, "git_log", rules)
    assert len(git.asked) == 1


async def test_where_not_all_files_can_be_checked_or_left_out_nothing_is_shown(monkeypatch):
    monkeypatch.setattr(git_tools, "MOST_DENIED", 3)
    rules = Permissions(allow("*"), deny(target=path("private/**")))

    async def find_error(listed: GitOutput, *more: GitOutput) -> str:
        git = NotedGit(listed, *more)
        result = await call(git, "git_diff", rules)
        assert len(git.asked) == 1 + len(more)
        assert result.status == ("ok" if more else "error")
        return result.text

    assert await find_error(GitOutput("a.py\0", is_truncated=True)) == (
        "there are too many files to check: ask for one file or folder"
    )
    assert await find_error(GitOutput("", 128, "fatal: bad revision")) == "git failed: fatal: bad revision"
    names = [f"private/{number:04}\0" for number in range(4)]
    assert await find_error(GitOutput("".join(names))) == (
        "more than 3 of these files are denied: ask for one file or folder"
    )
    assert await find_error(GitOutput("".join(names[1:])), GitOutput("shown")) == "shown"


async def test_named_files_are_added_and_then_committed_alone():
    git = NotedGit(GitOutput(""), GitOutput("[main 1234567] Boat\n"))
    result = await call(git, "git_commit", message="Boat", paths=["a.py", "./new.py"])
    assert (result.status, result.text) == ("ok", "[main 1234567] Boat")
    assert git.asked == [
        ("add", "--all", "--", "a.py", "new.py"),
        ("commit", "--only", "--file=-", "--", "a.py", "new.py", {"given": "Boat"}),
    ]


@pytest.mark.parametrize(
    ("outputs", "status", "text"),
    [
        ([GitOutput(""), GitOutput("")], "ok", "committed"),
        ([GitOutput("", 128, "fatal: no match")], "error", "git failed: fatal: no match"),
        (
            [GitOutput(""), GitOutput("untracked: .env", 1, " \n")],
            "error",
            "there is nothing to commit: the named files are as in the last commit",
        ),
        ([GitOutput(""), GitOutput("x", 1, "fatal: locked")], "error", "git failed: fatal: locked"),
        ([GitOutput(""), GitOutput("x", 2)], "error", "git failed: x"),
    ],
)
async def test_a_commit_is_told_whether_it_was_made_or_why_not(outputs, status, text):
    git = NotedGit(*outputs)
    result = await call(git, "git_commit", message="Boat", paths=["a.py"])
    assert (result.status, result.text, git.outputs) == (status, text, [])


@pytest.mark.parametrize(
    ("build", "arguments", "text"),
    [
        (build_diff_command, {"base": "main", "staged": True}, "give base, or staged, not both"),
        (build_log_command, {"limit": 0}, "limit=0: give a number from 1 to 200"),
        (build_log_command, {"limit": 201}, "limit=201: give a number from 1 to 200"),
        (build_show_command, {"revision": "-p"}, "'-p' is no revision: give a branch, a tag, a hash, or HEAD~1"),
        (build_commit_command, {"message": " ", "paths": ["a"]}, "give a message for the commit"),
        (build_commit_command, {"message": "m", "paths": []}, "name the files to commit"),
    ],
)
def test_a_command_that_cannot_be_made_says_what_to_give(build, arguments, text):
    with pytest.raises(ToolError) as raised:
        build(MemoryFiles(), **arguments)
    assert str(raised.value) == text


def test_a_revision_is_no_option_no_file_and_no_range():
    for revision in ("main", "v1.0", "HEAD~1", "feature/x-1", "a@{1}", "x" * 200):
        assert check_revision(revision) == revision
    for revision in ("", "-x", ".x", "/x", "a..b", "a b", "a:b", "x" * 201):
        with pytest.raises(ToolError, match="is no revision"):
            check_revision(revision)


def test_a_path_is_given_to_git_from_the_folder_on_and_a_link_as_itself():
    files = MemoryFiles({"a.py": "a"})
    named = [check_path(files, each) for each in (".", " a.py ", "sub/../a.py", f"{files.root}/sub/x", "sub/")]
    assert named == [".", "a.py", "a.py", "sub/x", "sub"]
    for wrong in ("", " ", "..", "../x", "/etc/passwd", f"{files.root}2/x"):
        with pytest.raises(ToolError) as raised:
            check_path(files, wrong)
        assert str(raised.value) == f"{wrong!r} cannot be used: it is outside the working folder {files.root!r}"
    assert check_path(files, "perdure.toml") == "perdure.toml"
    for wrong, write in (("perdure.toml", True), (".env", False), (".git", False)):
        with pytest.raises(ToolError, match="do not try again"):
            check_path(files, wrong, write=write)


async def test_what_cannot_be_run_is_refused_before_a_person_is_asked():
    git = NotedGit()
    result = await call(git, "git_commit", None, message="m", paths=[".env"])
    assert result.text == "'.env' cannot be used: files like '.env*' may contain secrets; do not try again"
    assert git.asked == []


def test_the_model_is_told_the_defaults_of_each_call() -> None:
    files, git = MemoryFiles({}), NotedGit()
    tools = [*git_read_tools(files, git), git_commit_tool(files, git)]
    properties = {each.name: each.parameters.json_schema["properties"] for each in tools}
    defaults = {
        name: {key: about["default"] for key, about in given.items() if "default" in about}
        for name, given in properties.items()
    }
    assert defaults == {
        "git_status": {},
        "git_diff": {"base": "", "path": ".", "staged": False},
        "git_log": {"base": "", "path": ".", "limit": 20},
        "git_show": {"revision": "HEAD", "path": "."},
        "git_commit": {},
    }


@pytest.mark.parametrize("make", [git_read_tools, git_commit_tool])
def test_an_object_that_is_no_backend_is_refused(make: Any) -> None:
    with pytest.raises(ConfigError, match=f"{make.__name__}.* resolve"):
        make(object(), NotedGit())
    with pytest.raises(ConfigError, match=f"{make.__name__}.* run_git"):
        make(MemoryFiles({}), object())


class RiskyGit(NotedGit):
    """A backend that runs git without a sandbox."""

    risk = "There is no sandbox: bubblewrap is not installed."


async def test_where_git_runs_without_a_sandbox_every_call_asks_and_the_question_says_so():
    questions: list[PermissionRequest] = []

    async def refuse(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        questions.extend([each for each in requests if each.required])
        return await deny_all(requests)

    calls: list[tuple[str, dict[str, Any]]] = [
        ("git_status", {}),
        ("git_diff", {}),
        ("git_log", {}),
        ("git_show", {}),
        ("git_commit", {"message": "m", "paths": ["a.py"]}),
    ]
    for name, arguments in calls:
        git = RiskyGit()
        result = await call(git, name, refuse, **arguments)
        assert (result.status, git.asked) == ("denied", [])
    assert [each.note for each in questions] == [RiskyGit.risk] * 5
