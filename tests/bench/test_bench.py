"""`make bench` works and its table is complete. Of the figures, only the ratios of `regressions.py` have limits."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import long_history, startup, table, versions
from bench.__main__ import GROUPS, main
from bench.http import lag
from bench.measure import Figure, spread

ROOT = Path(__file__).parents[2]

TOLD = ("tokens reported", "no tokens reported")

EXPECTED = [
    "`import perdure`",
    "`from perdure import Agent, tool`",
    "`Agent` and `tool` over asyncio and msgspec",
    "`perdure --help`",
    "`perdure run` to its first request",
    "the chat to its first prompt",
    "distributions installed",
    "building an agent",
    "decorating a tool",
    "tool turn",
    "tool turn, all CPU",
    "growth from the 10th turn to the 200th",
    "hand-written turn",
    "tool turn, watched",
    "tool turn, SQLite, reading tool",
    "tool turn, SQLite, changing tool",
    "run with one answer",
    "run with one answer, new session",
    "run with one tool turn",
    "run with one tool turn, new session",
    "`agent.run` with one tool turn",
    "run on SQLite, changing tool",
    "run on SQLite, changing tool, new session",
    "run on SQLite, compared with bare apsw",
    "a delta to an async watcher",
    "a delta through `stream()`",
    "a delta to a watcher on a thread",
    "a delta without a watcher",
    "a delta by hand",
    "a turn of 20 in one run",
    "growth from 20 turns to 200",
    "memory that a turn leaves",
    *[f"turn 200 against turn 50: {kind.name}, {told}" for told in TOLD for kind in long_history.KINDS],
    "`run_sync`, one answer",
    "arguments of a call",
    "check of a result, 300 properties",
    "append, memory",
    "append, SQLite",
    "append, SQLite, barrier",
    "opening a session of 20 turns",
    "append and commit",
    "append and commit, a few words",
    "barriers of many sessions at once, each",
    "appends of a turn, growth",
    "barrier beside a busy loop, p99",
    "opening a conversation of 20 turns",
    "opening a session of 20 runs",
    "bytes on disk",
    "bytes on disk with 100 forks",
    "search over 2,000 messages",
    "bytes on disk with the search index",
    "edit of 1 MiB",
    *(["grep over a tree", "glob over a tree"] if shutil.which("rg") else []),
    "grep over a tree, without ripgrep",
    "glob over a tree, without ripgrep",
    "sandboxed command, over the bare one",
    "supervised command, over the bare one",
    "taking a command line apart",
    "500 tools in the prompt",
    "program with ten calls at once",
    "program with ten calls in a row",
    "MCP call",
    "buffer of 20 messages",
    "window of 10 turns",
    "recall by words",
    "recall by words and vectors",
    "HTTP tool turn, at turn 10",
    "HTTP tool turn, at turn 10: by hand",
    "HTTP tool turn, at turn 50",
    "HTTP tool turn, at turn 50: by hand",
    "HTTP delta to a handler",
    "HTTP delta to a handler: by hand",
    "200 sessions of 5 tool turns at once",
    "200 sessions of 5 tool turns at once: by hand",
    "HTTP tool turn, compared with one by hand",
    "200 sessions at once, compared with those by hand",
    "HTTP tool turn, traced, compared with untraced",
    "HTTP tool turn, traced to a file",
    "ratio: tool turn",
    "ratio: run with one answer",
    "ratio: run with one tool turn",
    "ratio: building an agent",
    "ratio: delta to a watcher",
    "ratio: run on SQLite",
    "ratio: HTTP tool turn",
]


def rows(printed: str) -> list[list[str]]:
    """The cells of the table's body."""
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@pytest.mark.needs("bubblewrap")
@pytest.mark.timeout(300)
def test_a_quick_run_prints_the_whole_table_and_explains_each_figure(tmp_path):
    command = [sys.executable, "-m", "bench", "--quick", "--json", str(tmp_path / "figures.json")]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [cells[0] for cells in rows(printed)] == EXPECTED
    assert {len(cells) for cells in rows(printed)} == {5}
    assert all(f"- {name}: " in printed for name in EXPECTED)
    told = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert [figure["name"] for figure in told["figures"]] == EXPECTED
    assert all(isinstance(figure["value"], float | int) for figure in told["figures"])


def test_one_group_of_figures_can_be_asked_for(capsys):
    main(["--quick", "--only", "build"])
    assert [cells[0] for cells in rows(capsys.readouterr().out)] == ["building an agent", "decorating a tool"]


def test_a_group_that_does_not_exist_is_refused_with_those_that_do(capsys):
    with pytest.raises(SystemExit):
        main(["--only", "speed"])
    told = capsys.readouterr().err
    assert all(name in told for name in GROUPS)


@pytest.mark.parametrize(
    ("value", "budget", "at_most", "verdict"),
    [
        (30.0, 30.0, None, "kept"),
        (30.1, 30.0, None, "missed"),
        (30.1, 30.0, 50.0, "missed, within 50"),
        (50.1, 30.0, 50.0, "missed"),
        (50.1, None, None, "no budget"),
    ],
)
def test_a_verdict_says_whether_the_budget_was_kept(value, budget, at_most, verdict):
    assert Figure("turn", value, "us", "", budget=budget, at_most=at_most).verdict == verdict


def test_a_row_tells_the_value_its_budget_and_what_it_is_compared_with():
    figure = Figure("turn", 31.25, "us", "", budget=30, ratio=7.5, detail="min 29.0")
    assert table.row(figure) == "| turn | 31.2 us (min 29.0) | 30 us | 7.50 x hand-written turn | missed |"


def test_a_row_without_budget_or_ratio_has_dashes():
    assert table.row(Figure("packages", 9, "", "")) == "| packages | 9 | - | - | no budget |"


def test_runs_are_measured_on_another_interpreter():
    assert set(versions.ROWS) <= set(versions.run_figures(sys.executable, "--quick"))


def test_readings_become_a_spread_in_microseconds():
    assert spread([1_000, 2_000, 3_000, 4_000, 5_000]).median == 3.0


def test_what_an_install_brings_holds_the_package_itself_and_what_it_needs():
    assert {"perdure", "msgspec"} <= startup.distributions("perdure")


def test_an_import_that_fails_is_no_measurement():
    with pytest.raises(RuntimeError, match="ended with 1"):
        startup.cpu_ms("raise SystemExit(1)")


def test_the_lag_of_the_event_loop_is_measured_with_a_server_that_trickles(monkeypatch):
    monkeypatch.chdir(ROOT)
    told = lag.main(sessions=3, words=1)
    assert told["p50_ms"] <= told["p99_ms"] <= told["worst_ms"]
    assert told["cpu_s"] > 0
