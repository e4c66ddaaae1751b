"""`perdure memory`: what agents remember, from the command line."""

import json

import pytest


def lines(result):
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def added(perdure):
    """The id of a memory of Ann."""
    result = perdure("memory", "add", "Ann drinks", "black coffee.", "--user", "ann", "--tag", "drinks")
    assert result.exit_code == 0, result.stderr
    return result.stdout.strip()


def test_a_memory_is_added_listed_and_found(perdure, added):
    listed = perdure("memory", "list", "--user", "ann")
    assert added in listed.stdout
    assert "#drinks Ann drinks black coffee." in listed.stdout
    (hit,) = lines(perdure("memory", "search", "coffee", "(AND", "--user", "ann", "--json"))
    assert (hit["memory"]["id"], hit["memory"]["sources"]) == (added, ["person"])
    assert added in perdure("memory", "search", "coffee", "--user", "ann").stdout
    assert lines(perdure("memory", "list", "--user", "ann", "--tag", "other", "--json")) == []
    assert lines(perdure("memory", "list", "--user", "ann", "--kind", "fact", "--json"))[0]["id"] == added
    assert "--offset 1" in perdure("memory", "list", "--user", "ann", "--limit", "1").stderr


@pytest.mark.usefixtures("added")
def test_memories_of_another_user_or_project_are_not_seen(perdure):
    for scope in ([], ["--user", "bob"], ["--project", "ann"], ["--user", "ann", "--project", "x"]):
        assert lines(perdure("memory", "list", "--json", *scope)) == []
    assert "nothing was found" in perdure("memory", "search", "coffee").stderr


def test_a_memory_is_pinned_and_unpinned(perdure, added):
    assert "pinned" in perdure("memory", "pin", added, "--user", "ann").stdout
    (pinned,) = lines(perdure("memory", "list", "--pinned", "--user", "ann", "--json"))
    assert pinned["pinned"]
    assert "pinned" not in lines(perdure("memory", "unpin", added, "--user", "ann", "--json"))[0]
    assert lines(perdure("memory", "list", "--pinned", "--user", "ann", "--json")) == []
    (made,) = lines(perdure("memory", "add", "Answer in French.", "--pin", "--json"))
    assert made["pinned"]


def test_a_memory_is_forgotten(perdure, added):
    (done,) = lines(perdure("memory", "forget", added, "--user", "ann", "--json"))
    assert done == {"forgotten": [added], "unknown": []}
    again = perdure("memory", "forget", added, "--user", "ann")
    assert again.exit_code == 2
    assert "perdure memory list" in again.stderr
    assert perdure("memory", "pin", added).exit_code == 2


def test_memories_are_exported_and_imported(perdure, added, tmp_path):
    file = tmp_path / "ann.jsonl"
    assert "1 memories" in perdure("memory", "export", "--user", "ann", "-o", str(file)).stderr
    assert perdure("memory", "export", "--user", "ann", "-o", str(file)).exit_code != 0
    (done,) = lines(perdure("memory", "export", "--user", "ann", "-o", str(file), "--force", "--json"))
    assert done["memories"] == 1
    assert lines(perdure("memory", "export", "--user", "ann")) == [json.loads(file.read_text())]
    other = ["--file", str(tmp_path / "other.db")]
    assert lines(perdure("memory", "import", str(file), "--json", *other)) == [{"added": 1, "known": 0}]
    assert "1 were there already" in perdure("memory", "import", str(file), *other).stderr
    (found,) = lines(perdure("memory", "list", "--json", *other))
    assert (found["id"], found["labels"]) == (added, ["imported"])
    refused = perdure("memory", "pin", added, *other)
    assert refused.exit_code == 2
    assert "anybody may have written" in refused.stderr
    trusted = perdure("memory", "import", "-", "--trusted", "--user", "x", stdin=file.read_text())
    assert trusted.exit_code == 0
    assert "labels" not in lines(perdure("memory", "list", "--user", "x", "--json"))[0]


def test_a_broken_line_is_named(perdure, tmp_path):
    file = tmp_path / "broken.jsonl"
    file.write_text("{}\n")
    result = perdure("memory", "import", str(file))
    assert result.exit_code == 2
    assert "line 1 is no memory" in result.stderr
    assert perdure("memory", "import", str(tmp_path / "none")).exit_code == 2


def test_a_time_without_a_date_is_refused_on_import(perdure, tmp_path):
    file = tmp_path / "hostile.jsonl"
    file.write_text('{"id": "m1", "text": "far away", "created_at": 1e300}\n')
    refused = perdure("memory", "import", str(file))
    assert refused.exit_code == 2
    assert "line 1" in refused.stderr
    assert perdure("memory", "list").exit_code == 0


def test_control_characters_are_shown(perdure):
    assert perdure("memory", "add", "red \x1b[31m text").exit_code == 0
    assert "\x1b" not in perdure("memory", "list").stdout


def test_help_has_examples(perdure):
    assert "perdure memory search coffee" in perdure("memory").stdout
    for name in ("list", "search", "add", "forget", "pin", "unpin", "export", "import"):
        assert f"perdure memory {name}" in perdure("memory", name, "--help").stdout


@pytest.mark.parametrize("extensions", ["", "[extensions]\nhistory = true\n"])
def test_an_agent_of_a_trusted_file_has_the_memory(perdure, tmp_path, extensions):
    (tmp_path / "perdure.toml").write_text(f'model = "demo"\n{extensions}[memory]\nuser = "ann"\n')
    trusted = perdure("trust", "--yes", "perdure.toml")
    assert trusted.exit_code == 0, trusted.stderr
    assert perdure("memory", "add", "Answer in French.", "--user", "ann", "--pin").exit_code == 0
    ran = perdure("run", "-q", "--session", "s", "--trace", str(tmp_path / "trace.jsonl"), "hello")
    assert ran.exit_code == 0, ran.stderr
    trace = (tmp_path / "trace.jsonl").read_text()
    assert '"recall"' in trace
    assert "You have a memory that lasts beyond this conversation" in trace
