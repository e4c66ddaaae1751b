"""Hostile repositories, and every git tool and silent git command in them: no program of theirs runs.

Programs are counted by strace in the whole tree of processes. That a plain git runs the program of each layout, and
that the trace would see it, is tested as well.

In the short form root tries one half of the layouts and the other user the other one. In each the tool is used that is
nearest to the command which runs its program, and in turn another tool, another call, or a silent command; the turns
begin elsewhere in each run.

PERDURE_SEARCH=long    every tool and every silent command in every layout, and races for longer
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure._tools.shell.read_only import _GIT
from tests.security.exec_trace import Started, build_environment, read_trace, trace_programs
from tests.security.git_layout_program import SILENT
from tests.security.git_layouts import LAYOUTS, Layout, build_layout, make_base, runs_with_plain_git
from tests.seeds import SEED

pytestmark = [
    pytest.mark.needs("bubblewrap", "strace"),
    pytest.mark.packages("tree_sitter_bash"),
    pytest.mark.faults,
    pytest.mark.timeout(1800),
]
LONG = os.environ.get("PERDURE_SEARCH") == "long"
PLAINEST = "fsmonitor"
"""A layout in which all tools do their work."""
HERE = [
    each
    for number, each in enumerate(LAYOUTS)
    if LONG or each.name == PLAINEST or number % 2 == (os.geteuid() == 0)
]  # fmt: skip
"""The layouts that are tried."""
OURS = {"bwrap", Path(sys.executable).name}
"""Programs that the runtime starts outside of a sandbox."""
INSIDE = {"git", "sh", "bash", "env", "prlimit", "true", "kill"}
"""Programs of the system that it starts inside, for commands that run git."""
SYSTEM = ("/usr/", "/bin/", "/sbin/")


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The layouts, each in a folder of its own."""
    top = tmp_path_factory.mktemp("layouts")
    base = make_base(top / "base")
    home = top / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = Anna\n\temail = anna@example.org\n")
    built = {}
    for layout in HERE:
        (top / layout.name).mkdir()
        built[layout.name] = build_layout(layout, base, top / layout.name)
    return top, built


def trace(places, mode: str, layouts: Sequence[Layout] = HERE) -> tuple[dict[str, dict[str, str]], list[Started]]:
    """Run the program with all layouts; return how each call ended, and the programs that were started."""
    top, built = places
    given = [{"name": each.name, "root": str(built[each.name]), "top": str(top / each.name), "race": each.race,
              "trigger": each.trigger, "turn": SEED + number, "is_plainest": each.name == PLAINEST}
             for number, each in enumerate(layouts)]  # fmt: skip
    names = top / f"{mode}.json"
    names.write_text(json.dumps(given))
    words = [sys.executable, "-m", "tests.security.git_layout_program", mode, str(names), *(["long"] if LONG else [])]
    root = Path(__file__).resolve().parents[2]
    output, started = trace_programs(words, top / mode, build_environment(HOME=str(top / "home")), cwd=root)
    return json.loads(output), started


def is_of_layout(each: Started, top: Path) -> bool:
    """Return True for a program of a repository, also one that a shell or env was given."""
    name = Path(each.program).name
    named = Path(each.words.split('", "')[-1].strip('"')).name if name in {"sh", "env", "timeout"} else ""
    return "evil" in {name, named} or each.program.startswith(f"{top}/") or not each.program.startswith("/")


@pytest.mark.parametrize("layout", HERE, ids=lambda each: each.name)
def test_a_plain_git_runs_the_program_of_this_layout(layout, places):
    assert runs_with_plain_git(layout, places[0] / layout.name)


def test_no_tool_and_no_silent_command_runs_a_program_of_a_repository_anywhere(places):
    ended, started = trace(places, "tools")
    outside = {Path(each.program).name for each in started if not each.is_inside}
    assert outside <= OURS
    inside = [each for each in started if each.is_inside]
    assert [each for each in inside if is_of_layout(each, places[0])] == []
    assert [each for each in inside if Path(each.program).name not in INSIDE] == []
    assert {each.program for each in inside if each.has_run and not each.program.startswith(SYSTEM)} == set()
    statuses = Counter(status for each in ended.values() for status in each.values())
    assert len(ended) == len(HERE)
    assert statuses["ok"] > len(HERE)  # in most, the tools do their work, as if no programs were there
    assert set(ended[PLAINEST].values()) == {"ok"}


def test_commands_that_were_agreed_to_run_such_programs_in_the_sandbox_alone(places):
    _, started = trace(places, "asked", HERE if LONG else HERE[::12])
    assert {Path(each.program).name for each in started if not each.is_inside} <= OURS
    assert any(is_of_layout(each, places[0]) for each in started if each.is_inside)  # or the trace would see nothing


def test_the_trace_sees_a_program_of_each_layout_that_runs_outside(places):
    _, started = trace(places, "host")
    seen = [each for each in started if not each.is_inside and is_of_layout(each, places[0])]
    assert len(seen) == len(HERE)


def test_every_silent_command_of_git_is_among_those_that_are_tried():
    assert {line.split()[1] for line in SILENT} - {"stash", "worktree", "tag"} == set(_GIT)


NUMBER_GIVEN_AWAY = """
10 execve("/usr/bin/python", ["python"], 0x1) = 0
10 vfork( <unfinished ...>
20 execve("/usr/bin/bwrap", ["bwrap"], 0x1) = 0
10 <... vfork resumed>) = 20
20 clone(flags=CLONE_NEWNS|SIGCHLD) = 21
21 execve("/usr/bin/git", ["git"], 0x1) = 0
20 +++ exited with 0 +++
10 vfork( <unfinished ...>
21 execve("/usr/bin/bwrap", ["bwrap"], 0x1) = 0
21 clone(flags=CLONE_NEWNS|SIGCHLD) = 22
10 <... vfork resumed>) = 21
22 execve("/usr/bin/sh", ["sh"], 0x1) = 0
22 +++ exited with 0 +++
21 +++ exited with 0 +++
"""


def test_a_number_of_a_process_that_is_given_away_before_its_end_is_told_is_that_of_the_next_one():
    started = read_trace(NUMBER_GIVEN_AWAY.strip().splitlines())
    found = [(Path(each.program).name, each.is_inside) for each in started]
    assert sorted(found) == [("bwrap", False), ("bwrap", False), ("git", True), ("python", False), ("sh", True)]
