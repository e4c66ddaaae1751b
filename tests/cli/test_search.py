"""`perdure search`: what was said, in all sessions or in one."""

import json
import time

import pytest

from perdure._cli.terminal.output import escape_controls


@pytest.fixture
def kept(perdure):
    """Two sessions, in which a tool says 42 and 81."""
    assert perdure("run", "-q", "--session", "alpha", "Calculate 6 * 7 for the harbour").exit_code == 0
    assert perdure("run", "-q", "--session", "beta", "Calculate 9 * 9 for the lighthouse").exit_code == 0


def hits(result) -> list[tuple[str, int, str]]:
    assert result.exit_code == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return sorted((hit["session_id"], hit["seq"], hit["role"]) for hit in found)


@pytest.mark.usefixtures("kept")
def test_a_hit_is_a_line_that_says_where_when_who_and_what(perdure):
    result = perdure("search", "harbour")
    (line,) = result.stdout.splitlines()
    name, seq, day, _, who, *words = line.split()
    assert (name, day, who) == ("alpha", time.strftime("%Y-%m-%d"), "user:")
    assert int(seq) > 0
    assert " ".join(words) == "Calculate 6 * 7 for the «harbour»"
    assert result.stderr == ""


@pytest.mark.usefixtures("kept")
def test_hits_for_programs_are_lines_of_json(perdure):
    (hit,) = [json.loads(line) for line in perdure("search", "the", "harbour", "--json").stdout.splitlines()]
    assert set(hit) == {"session_id", "seq", "role", "snippet", "score", "at"}
    assert hit["snippet"] == "Calculate 6 * 7 for «the» «harbour»"


@pytest.mark.usefixtures("kept")
def test_a_search_is_narrowed(perdure):
    everything = hits(perdure("search", "calculate", "--json"))
    assert {name for name, _, _ in everything} == {"alpha", "beta"}
    assert {name for name, _, _ in hits(perdure("search", "calculate", "--json", "--session", "beta"))} == {"beta"}
    assert {name for name, _, _ in hits(perdure("search", "calculate", "--json", "--prefix", "al"))} == {"alpha"}
    assert {role for _, _, role in hits(perdure("search", "42", "--json", "--role", "tool"))} == {"tool"}
    assert hits(perdure("search", "calculate", "--json", "--since", "1h")) == everything
    assert hits(perdure("search", "calculate", "--json", "--until", "1h")) == []
    assert hits(perdure("search", "calculate", "--json", "--since", "2020-01-01", "--until", "2020-01-02T12:00")) == []


@pytest.mark.usefixtures("kept")
def test_hits_come_in_pages(perdure):
    first = perdure("search", "calculate", "--limit", "1")
    assert first.stderr == "there may be more; --offset 1 shows the next ones\n"
    second = perdure("search", "calculate", "--limit", "1", "--offset", "1")
    assert first.stdout.splitlines() != second.stdout.splitlines()
    beyond = perdure("search", "calculate", "--offset", "100")
    assert (beyond.exit_code, beyond.stdout, beyond.stderr) == (0, "", "nothing more was found\n")


def test_nothing_found_is_no_error(perdure):
    result = perdure("search", "harbour")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "nothing was found\n")
    assert perdure("search", "harbour", "--json").stderr == ""


@pytest.mark.usefixtures("kept")
def test_the_query_language_is_there_for_those_who_ask(perdure):
    found = hits(perdure("search", "--query-syntax", "harbo* OR lighthouse", "--role", "user", "--json"))
    assert [name for name, _, _ in found] == ["alpha", "beta"]
    assert perdure("search", "harbo* OR lighthouse").stderr == "nothing was found\n"
    wrong = perdure("search", "--query-syntax", "harbour AND")
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("error: the query 'harbour AND' is not understood (syntax error near")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "missing argument"),
        (["rain", "--limit", "101"], "101 is not in the range"),
        (["rain", "--role", "system"], "'system' is not one of"),
        (["rain", "--since", "yesterday"], "'yesterday' is not a time; use 2d or 90m, 2026-03-01"),
        (["?!"], "there is no word in '?!'"),
    ],
)
def test_what_makes_no_sense_is_told(perdure, arguments, complaint):
    result = perdure("search", *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_a_store_that_cannot_be_searched_says_so(perdure, tmp_path):
    result = perdure("search", "rain", "--store", f"file:{tmp_path / 'sessions'}")
    assert result.exit_code == 69
    assert "cannot be searched" in result.stderr


def test_what_is_found_cannot_act_on_a_terminal(perdure):
    said = "Calculate 6 * 7 harbour \x1b]0;owned\x07 \u202e end"
    assert perdure("run", "-q", "--session", "s", "-", stdin=said).exit_code == 0
    result = perdure("search", "harbour")
    assert "«harbour»" in result.stdout
    assert escape_controls(result.stdout) == result.stdout


def test_a_row_fits_a_terminal(shell):
    shell.run("run", "-q", "--session", "s", "Calculate 6 * 7 harbour " + "and so on " * 50)
    shell.environment["COLUMNS"] = "60"
    with shell.terminal("search", "harbour") as terminal:
        assert terminal.end() == 0
    (row,) = terminal.seen.splitlines()
    assert len(row) == 59
    assert row.endswith("…")


@pytest.mark.parametrize(
    ("age", "seconds"), [("1s", 1), ("2m", 120), ("3h", 10_800), ("4d", 345_600), ("2w", 1_209_600)]
)
def test_an_age_is_counted_back_from_now(perdure, monkeypatch, age, seconds):
    asked: list[tuple[float | None, float | None]] = []

    async def search(
        _store: object, _query: str, *, since: float | None, until: float | None, **_: object
    ) -> list[str]:
        asked.append((since, until))
        return []

    monkeypatch.setattr("perdure._stores.sqlite.store.SqliteStore.search", search)
    monkeypatch.setattr("perdure._cli.sessions.search.time.time", lambda: 2_000_000_000.0)
    perdure("search", "rain", "--since", age)
    assert asked == [(2_000_000_000.0 - seconds, None)]
