"""`windlass sessions`: what is kept."""

import json

import pytest


@pytest.fixture
def kept(windlass):
    """Three sessions, the last one first in a list."""
    for name in ("alpha", "beta", "album"):
        assert windlass("run", "-q", "--session", name, f"Calculate 6 * 7 for {name}").exit_code == 0


def names(result) -> list[str]:
    return [line.split()[0] for line in result.stdout.splitlines()]


@pytest.mark.usefixtures("kept")
def test_sessions_are_listed_the_latest_first(windlass):
    assert names(windlass("sessions", "list")) == ["album", "beta", "alpha"]
    assert names(windlass("sessions", "list", "--prefix", "al")) == ["album", "alpha"]
    shorter = windlass("sessions", "list", "--limit", "2")
    assert names(shorter) == ["album", "beta"]
    assert shorter.stderr == "there are more; --limit 4 shows more of them\n"


@pytest.mark.usefixtures("kept")
def test_a_list_for_programs_has_a_line_for_each(windlass):
    lines = [json.loads(line) for line in windlass("sessions", "list", "--json").stdout.splitlines()]
    assert len(lines) == 3
    assert (lines[0]["session_id"], lines[0]["title"]) == ("album", "Calculate 6 * 7 for album")


def test_an_empty_list_says_so(windlass):
    result = windlass("sessions", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == 'there is no session; windlass run "…" begins one\n'
    assert windlass("sessions", "list", "--json").stderr == ""


@pytest.mark.usefixtures("kept")
def test_a_session_is_shown_as_it_was(windlass):
    assert windlass("sessions", "show", "beta").stdout == (
        "user:\n"
        "  Calculate 6 * 7 for beta\n"
        "assistant (words):\n"
        '  call calculate {"expression":"6 * 7"}\n'
        "  calculate ok: 42\n"
        "assistant (words):\n"
        "  The tool calculate says: 42 (Told by the offline demonstration model.)\n"
    )


@pytest.mark.usefixtures("kept")
def test_a_log_is_written_for_programs(windlass):
    entries = [json.loads(line) for line in windlass("sessions", "show", "beta", "--json").stdout.splitlines()]
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    assert entries[-1]["event"]["status"] == "done"


@pytest.mark.usefixtures("kept")
def test_a_session_is_removed_as_often_as_one_likes(windlass):
    for _ in range(2):
        result = windlass("sessions", "rm", "beta", "--yes")
        assert (result.exit_code, result.stderr) == (0, "session beta is not there any more\n")
    assert names(windlass("sessions", "list")) == ["album", "alpha"]


@pytest.mark.usefixtures("kept")
def test_nothing_is_removed_where_nobody_can_be_asked(windlass):
    result = windlass("sessions", "rm", "beta")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: nobody can be asked here; say --yes to remove the session")
    assert "beta" in names(windlass("sessions", "list"))


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, ""), ("n\n", 1, "s")])
def test_removing_is_asked_about_at_a_terminal(shell, answer, code, left):
    shell.run("run", "-q", "--session", "s", "Calculate 6 * 7")
    with shell.terminal("sessions", "rm", "s") as terminal:
        terminal.await_text("Remove session 's' for good? [y/N]: ")
        terminal.type(answer)
        assert terminal.end() == code
    assert shell.run("sessions", "list").stdout.startswith(left)
    assert bool(shell.run("sessions", "list").stdout) is bool(left)


def test_a_row_fits_a_terminal(shell):
    shell.run("run", "-q", "--session", "s", "Calculate 6 * 7 " + "and so on " * 50)
    shell.environment["COLUMNS"] = "60"
    with shell.terminal("sessions", "list") as terminal:
        assert terminal.end() == 0
    (row,) = terminal.seen.splitlines()
    assert len(row) == 59
    assert row.endswith("…")
