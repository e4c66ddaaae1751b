"""`perdure sessions du` and `prune`: how much there is, and how it becomes less."""

import json

import pytest

from tests.cli.process import STAND_INS


def names(perdure) -> list[str]:
    return [line.split()[0] for line in perdure("sessions", "list").stdout.splitlines()]


@pytest.mark.usefixtures("kept")
def test_sizes_are_shown_the_largest_first(perdure):
    perdure("run", "-q", "-s", "beta", "Calculate 1 + 1")
    lines = perdure("sessions", "du").stdout.splitlines()
    assert lines[0].endswith("iB  beta")
    assert [line.split("  ")[-1].split(":")[0].split(",")[0] for line in lines[3:]] == [
        "sessions",
        "search index",
        "free",
        "total",
    ]
    shorter = perdure("sessions", "du", "--limit", "1").stdout.splitlines()
    assert shorter[1].endswith("  in 2 more sessions")


@pytest.mark.usefixtures("kept")
def test_sizes_for_programs_are_in_bytes(perdure):
    size = json.loads(perdure("sessions", "du", "--json").stdout)
    assert set(size) == {"total_bytes", "free_bytes", "search_bytes", "sessions"}
    assert set(size["sessions"]) == {"alpha", "beta", "album"}
    assert 0 < sum(size["sessions"].values()) < size["total_bytes"]


def test_a_store_that_has_no_size_says_so(perdure):
    result = perdure("sessions", "du", "--store", "memory:")
    assert result.exit_code == 69
    assert result.stderr.startswith("error: a MemoryStore has no size and no backup")


@pytest.mark.usefixtures("kept")
def test_the_oldest_are_removed_and_told(perdure):
    dry = perdure("sessions", "prune", "--keep", "1", "--dry-run")
    assert [line.split()[0] for line in dry.stdout.splitlines()] == ["alpha", "beta"]
    assert dry.stderr == "nothing was removed\n"
    assert len(names(perdure)) == 3
    done = perdure("sessions", "prune", "--keep", "1", "--yes")
    assert (done.exit_code, done.stdout, done.stderr) == (0, dry.stdout, "removed 2 sessions\n")
    assert names(perdure) == ["album"]
    again = perdure("sessions", "prune", "--keep", "1", "--yes")
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "there is nothing to remove\n")


@pytest.mark.usefixtures("kept")
def test_age_and_size_are_criteria_too(perdure):
    assert perdure("sessions", "prune", "--older-than", "1h", "--yes").stderr == "there is nothing to remove\n"
    assert perdure("sessions", "prune", "--max-bytes", "1G", "--yes").stderr == "there is nothing to remove\n"
    removed = perdure("sessions", "prune", "--older-than", "0s", "--max-bytes", "1", "--yes", "--json")
    assert [json.loads(line)["session_id"] for line in removed.stdout.splitlines()] == ["alpha", "beta", "album"]
    assert names(perdure) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is no criterion; give at least one of --older-than, --keep and --max-bytes"),
        (["--keep", "-1"], "invalid value for '--keep'"),
        (["--older-than", "30"], "invalid value for '--older-than': '30' is not a duration; use 30d"),
        (["--max-bytes", "lots"], "invalid value for '--max-bytes': 'lots' is not a size; use 500M"),
    ],
)
def test_a_criterion_that_is_missing_or_makes_no_sense_is_an_error(perdure, arguments, message):
    result = perdure("sessions", "prune", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {message}")


@pytest.mark.usefixtures("kept")
def test_nothing_is_removed_where_nobody_can_be_asked(perdure):
    result = perdure("sessions", "prune", "--keep", "0")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: there is no terminal to ask at; use --yes to remove the sessions")
    assert len(names(perdure)) == 3


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("removed", "told"),
    [
        (2, "removed 2 sessions; 1 was used meanwhile and kept"),
        (1, "removed 1 session; 2 were used meanwhile and kept"),
    ],
)
def test_sessions_that_were_used_meanwhile_are_counted(perdure, monkeypatch, removed, told):
    async def delete(_store, chosen):
        return chosen[:removed]

    monkeypatch.setattr("perdure._runtime.maintenance.delete_sessions", delete)
    assert perdure("sessions", "prune", "--keep", "0", "--yes").stderr == f"{told}\n"


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 0), ("n\n", 1, 1)])
def test_removing_is_asked_about_at_a_terminal(shell, answer, code, left):
    shell.run("run", "-q", "--session", "s", "Calculate 6 * 7")
    with shell.terminal("sessions", "prune", "--keep", "0") as terminal:
        terminal.await_text("Remove 1 session permanently? [y/N]: ")
        assert "s  " in terminal.seen
        terminal.type(answer)
        assert terminal.end() == code
    assert len(shell.run("sessions", "list").stdout.splitlines()) == left


def test_a_session_that_is_driven_or_waits_is_left_alone(shell):
    shell.run("run", "-q", "--later", "-s", "asks", 'Write "hello" to the text file hello.txt')
    with shell.started("run", "--model", "odd:stuck", "-s", "driven", "go", program=STAND_INS) as other:
        assert other.stdout.read(8) == b"thinking"
        assert shell.run("sessions", "prune", "--keep", "0", "--yes").stderr == "there is nothing to remove\n"
        result = shell.run("sessions", "prune", "--keep", "0", "--waiting-too", "--yes")
        assert [line.split()[0] for line in result.stdout.splitlines()] == ["asks"]
