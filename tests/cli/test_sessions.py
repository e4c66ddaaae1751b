"""`perdure sessions`: what is kept."""

import json

import pytest


def names(result) -> list[str]:
    return [line.split()[0] for line in result.stdout.splitlines()]


@pytest.mark.usefixtures("kept")
def test_sessions_are_listed_the_latest_first(perdure):
    assert names(perdure("sessions", "list")) == ["album", "beta", "alpha"]
    assert names(perdure("sessions", "list", "--prefix", "al")) == ["album", "alpha"]
    shorter = perdure("sessions", "list", "--limit", "2")
    assert names(shorter) == ["album", "beta"]
    assert shorter.stderr == "there are more; --offset 2 shows the next ones, --limit 4 more at once\n"
    assert names(perdure("sessions", "list", "--limit", "2", "--offset", "2")) == ["alpha"]
    beyond = perdure("sessions", "list", "--offset", "3")
    assert (beyond.stdout, beyond.stderr) == ("", "there is no more session; --offset is too large\n")


@pytest.mark.usefixtures("kept")
def test_a_list_for_programs_has_a_line_for_each(perdure):
    lines = [json.loads(line) for line in perdure("sessions", "list", "--json").stdout.splitlines()]
    assert len(lines) == 3
    assert (lines[0]["session_id"], lines[0]["title"]) == ("album", "Calculate 6 * 7 for album")


@pytest.mark.usefixtures("kept")
def test_a_list_tells_forks(perdure):
    perdure("sessions", "fork", "alpha", "branch", "--at", "3")
    rows = {line.split()[0]: line for line in perdure("sessions", "list").stdout.splitlines()}
    assert rows["branch"].endswith("    3 entries  (fork of alpha at 3) Calculate 6 * 7 for alpha")
    assert "fork" not in rows["alpha"]


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_without_a_command_it_tells_what_it_can_do(perdure, arguments):
    result = perdure("sessions", *arguments)
    assert result.exit_code == 0
    commands = ["list", "show", "fork", "rm", "export", "import", "du", "prune", "rename", "tree"]
    assert [name for name in commands if f"\n  {name} " not in result.stdout] == []


@pytest.mark.usefixtures("kept")
def test_a_session_gets_a_title(perdure):
    result = perdure("sessions", "rename", "beta", "The \x1b[31manswer")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "session beta is now titled 'The \\x1b[31manswer'\n"
    (row,) = perdure("sessions", "list", "--prefix", "beta").stdout.splitlines()
    assert row.endswith("answer")
    assert "\x1b" not in row
    done = perdure("sessions", "rename", "beta", "Another", "--json")
    assert json.loads(done.stdout) == {"session_id": "beta", "title": "Another"}
    assert perdure("sessions", "rename", "nobody", "x").exit_code == 66
    assert perdure("sessions", "rename", "beta", " ").exit_code == 2


def test_an_empty_list_says_so(perdure):
    result = perdure("sessions", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == 'there is no session; perdure run "…" creates one\n'
    assert perdure("sessions", "list", "--json").stderr == ""


@pytest.mark.usefixtures("kept")
def test_a_session_is_removed_as_often_as_one_likes(perdure):
    for said in ("is removed", "does not exist"):
        result = perdure("sessions", "rm", "beta", "--yes")
        assert (result.exit_code, result.stderr) == (0, f"session beta {said}\n")
    assert names(perdure("sessions", "list")) == ["album", "alpha"]


@pytest.mark.usefixtures("kept")
def test_programs_are_told_whether_there_was_something_to_remove(perdure):
    for removed in (True, False):
        result = perdure("sessions", "rm", "beta", "--yes", "--json")
        assert (json.loads(result.stdout), result.stderr) == ({"session_id": "beta", "removed": removed}, "")


@pytest.mark.usefixtures("kept")
def test_nothing_is_removed_where_nobody_can_be_asked(perdure):
    result = perdure("sessions", "rm", "beta")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: there is no terminal to ask at; use --yes to remove the session")
    assert "beta" in names(perdure("sessions", "list"))


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, ""), ("n\n", 1, "s")])
def test_removing_is_asked_about_at_a_terminal(shell, answer, code, left):
    shell.run("run", "-q", "--session", "s", "Calculate 6 * 7")
    with shell.terminal("sessions", "rm", "s") as terminal:
        terminal.await_text("Remove session 's' permanently? [y/N]: ")
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


@pytest.mark.usefixtures("kept")
def test_sessions_of_a_project_are_looked_for_among_the_latest_ones(perdure, tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    monkeypatch.chdir(project)
    perdure("run", "-q", "--session", "here", "Calculate 1 + 1")
    result = perdure("sessions", "list")
    assert (names(result), result.stderr) == (["here"], "not shown: 3 of other projects: --all\n")
    result = perdure("sessions", "list", "--limit", "2", "--all")
    assert (names(result), result.stderr) == (
        ["here", "album"],
        "there are more; --offset 2 shows the next ones, --limit 4 more at once\n",
    )
    assert names(perdure("sessions", "list", "--limit", "3", "--offset", "1", "--all")) == ["album", "beta", "alpha"]
    result = perdure("sessions", "list", "--prefix", "al")
    told = "there is no session that begins with 'al'; perdure run \"…\" creates one; 2 of other projects: --all\n"
    assert (result.stdout, result.stderr) == ("", told)
    perdure("run", "-q", "--session", "there", "Calculate 1 + 1")
    result = perdure("sessions", "list", "--limit", "1")
    assert (names(result), result.stderr) == (
        ["there"],
        "there are more; --offset 1 shows the next ones, --limit 2 more at once\n",
    )
    monkeypatch.setattr("perdure._cli.sessions.sessions.MOST_SEARCHED", 3)
    result = perdure("sessions", "list")
    assert (names(result), result.stderr) == (["there", "here"], "not shown: 1 of other projects: --all\n")
    monkeypatch.setattr("perdure._cli.sessions.sessions.MOST_SEARCHED", 1)
    assert names(perdure("sessions", "list")) == ["there"]
