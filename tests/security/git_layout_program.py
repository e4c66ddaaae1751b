"""Calls every git tool, and commands that run git, in hostile repositories; run below strace.

    python -m tests.security.git_layout_program MODE LAYOUTS [long]

`tools` calls what a model can call unasked, and a commit that was allowed. `asked` runs commands that a person has
agreed to. `host` runs the program of each repository as it is: what a trace must see.
"""

# ruff: noqa: E501 - a case is a line
import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from perdure import Agent, ConfigError, Permissions, ToolError, allow
from perdure.hosts import LocalFiles, LocalShell
from perdure.testing import ScriptedModel
from perdure.tools import LocalGit, git_commit_tool, git_read_tools, shell_tools
from tests.security.git_layouts import changing

AT_ONCE = 3
SILENT = (
    "git status", "git status --short --ignored", "git diff", "git diff --cached", "git diff HEAD~1 HEAD", "git diff --stat",
    "git log --oneline", "git log -p", "git log --stat", "git show", "git show HEAD:a.txt", "git show --name-only",
    "git blame a.txt", "git branch -a", "git cat-file -p HEAD", "git count-objects", "git describe --always",
    "git ls-files -o --exclude-standard", "git ls-files -m", "git ls-tree HEAD", "git merge-base HEAD HEAD",
    "git name-rev HEAD", "git reflog", "git remote -v", "git rev-list HEAD", "git rev-parse HEAD", "git shortlog HEAD",
    "git show-ref", "git stash list", "git worktree list", "git tag",
)  # fmt: skip
"""Commands that run unasked in a repository of one's own: each that the table of silent commands has."""
SOME_SILENT = (
    "git status; git blame a.txt; git ls-files -m; git stash list; git describe --always",
    "git diff",
    "git log -p",
)
ASKED = (
    "git status; git diff; git log -p; git show; git add a.txt; git commit -q --allow-empty -m x; git stash; git fetch",
    "touch x; git checkout -q -- a.txt; git st; git merge -q side; git submodule update; git gc -q; ./evil",
)
TOOLS: Sequence[tuple[str, dict[str, Any]]] = (
    ("git_status", {}),
    ("git_diff", {}),
    ("git_diff", {"staged": True}),
    ("git_diff", {"base": "side"}),
    ("git_log", {}),
    ("git_show", {}),
    ("git_commit", {"message": "Ours", "paths": ["a.txt"]}),
)
SOME_TOOLS = (TOOLS[0], TOOLS[1], TOOLS[5], TOOLS[6])
NEAREST = {"git status": 0, "git diff": 1, "git log": 2, "git show": 2, "git blame": 2}
"""Which of these does most nearly what a plain command does; for all others it is the commit."""
T = TypeVar("T")


def choose_tools(layout: Mapping[str, Any]) -> Sequence[tuple[str, dict[str, Any]]]:
    """Return the tool that is nearest to the command which runs the program of a layout; in turn also another one."""
    nearest = NEAREST.get(" ".join(layout["trigger"].split()[:2]), 3)
    others = [*SOME_TOOLS[:nearest], *SOME_TOOLS[nearest + 1 :]]
    return SOME_TOOLS[nearest], *choose_one(others, layout, 0)


def choose_one(things: Sequence[T], layout: Mapping[str, Any], kind: int) -> Sequence[T]:
    """Return one of several things if it is the turn of their kind, of three: other tools, calls and commands."""
    turn, kind_in_turn = divmod(layout["turn"], 3)
    return [things[turn % len(things)]] if kind_in_turn == kind else []


async def use_tools(layout, *, is_long):
    """Call the git tools, and run what is silent; return how each ended."""
    root, top, is_all = layout["root"], layout["top"], is_long or layout["is_plainest"]
    ended: dict[str, str] = {}
    files = LocalFiles(root)
    git = LocalGit(files)
    allowed = Permissions(allow("git_*"))
    tools = [*git_read_tools(files, git), git_commit_tool(files, git)]
    session = Agent(ScriptedModel(), tools=tools, permission=allowed).session()
    for name, arguments in TOOLS if is_all else choose_tools(layout):
        ended[f"{name} {arguments}"] = (await session.call(name, arguments)).status
    acts: Sequence[Callable[[], Any]] = (
        git.find_work_tree,
        git.read_branch,
        partial(git.add_worktree, f"{top}/added", "added"),
    )
    for act in acts if is_all else choose_one(acts, layout, 1):
        with contextlib.suppress(ToolError):
            await asyncio.to_thread(act)
    async with LocalShell(root, sandbox="require") as shell:
        session = Agent(ScriptedModel(), tools=shell_tools(shell), permission=Permissions()).session()
        for line in SILENT if is_long else SOME_SILENT if is_all else choose_one(SOME_SILENT, layout, 2):
            ended[line] = (await session.call("bash", {"command": line})).status
    return ended


async def run_asked(layout, *, is_long):
    """Run commands that a person has agreed to."""
    root, ended = layout["root"], dict[str, str]()
    for line in ASKED if is_long or layout["is_plainest"] else ASKED[layout["turn"] % 2 :][:1]:
        try:
            async with LocalShell(root, sandbox="require") as shell:
                tools = shell_tools(shell)
                session = Agent(ScriptedModel(), tools=tools, permission=Permissions(allow("*"))).session()
                ended[line] = (await session.call("bash", {"command": line, "timeout_seconds": 5})).status
        except ConfigError as error:
            ended[line] = str(error)
    return ended


def run_on_host(top):
    """Run the program of a repository as it is."""
    subprocess.run([f"{top}/repo/evil"], check=False)
    return {}


async def main(mode, layouts, *, is_long):
    """Go through the layouts, some at once."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def use(layout):
        async with turns:
            if mode == "host":
                return run_on_host(layout["top"])
            with changing(f"{layout['top']}/repo", layout["race"]) if layout["race"] else contextlib.nullcontext():
                ended: dict[str, str] = {}
                for turn in range((20 if is_long else 2) if layout["race"] else 1):
                    again = {**layout, "turn": layout["turn"] + turn}
                    ended |= await (run_asked if mode == "asked" else use_tools)(again, is_long=is_long)
            return ended

    found = await asyncio.gather(*[use(each) for each in layouts])
    sys.stdout.write(json.dumps({layout["name"]: each for layout, each in zip(layouts, found, strict=True)}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), is_long=sys.argv[3:] == ["long"]))
