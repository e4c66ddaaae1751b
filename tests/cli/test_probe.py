"""`perdure probe`: what an endpoint can do is found out, shown and kept."""

import json

import pytest

from tests.coming_from.shows import shows
from tests.models.probe.quirky import Quirks, QuirkyServer
from tests.wire.server import Playback


@pytest.fixture
def profiles(tmp_path, monkeypatch):
    monkeypatch.setenv("PERDURE_PROFILES", str(tmp_path / "profiles"))
    return tmp_path / "profiles"


@pytest.fixture
def quirky():
    """A server that cannot call tools, and wants a key."""
    with Playback(QuirkyServer(Quirks(key="very-secret", tools="refused", window="list"))) as server:
        yield f"{server.base_url}/v1"


@shows("glue", "package providers/openaicompat")
def test_what_was_learned_is_shown_and_kept_for_the_next_run(perdure, quirky, profiles, monkeypatch):
    monkeypatch.setenv("QUIRKY_KEY", "very-secret")
    result = perdure("probe", quirky, "quirky", "--key-env", "QUIRKY_KEY")
    assert result.exit_code == 0, result.output
    shown = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    assert shown["wire"].strip() == "openai_chat"
    assert shown["context"].strip() == "4096 tokens"
    assert "JSON tool mode is used" in shown["tools"]
    assert "testing: tool calls" in result.stderr
    (kept,) = profiles.iterdir()
    assert f"saved in {kept}; use it with: perdure run -m '{quirky}#quirky'" in result.stderr
    assert json.loads(kept.read_text())["profile"]["tools"] == "json"
    assert "very-secret" not in result.output + kept.read_text()


def test_a_rehearsal_keeps_nothing_and_programs_get_json(perdure, quirky, profiles, monkeypatch):
    monkeypatch.setenv("QUIRKY_KEY", "very-secret")
    result = perdure("probe", quirky, "quirky", "--key-env", "QUIRKY_KEY", "--dry-run", "--json")
    learned = json.loads(result.stdout)
    assert (learned["base_url"], learned["model"], learned["profile"]["context_tokens"]) == (quirky, "quirky", 4096)
    assert "nothing was saved" in result.stderr
    assert not profiles.exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ((), "Incorrect API key provided"),
        (("--key-env", "NO_SUCH_KEY"), "the variable NO_SUCH_KEY is not set; set it"),
    ],
)
def test_without_a_good_key_nothing_is_written(perdure, quirky, profiles, options, complaint):
    result = perdure("probe", quirky, "quirky", *options)
    assert result.exit_code in {2, 69}
    assert result.stdout == ""
    assert complaint in result.stderr
    assert not profiles.exists()


def test_where_nobody_answers_nothing_is_written(perdure, profiles):
    result = perdure("probe", "http://127.0.0.1:1/v1", "any")
    assert (result.exit_code, result.stdout) == (69, "")
    assert "cannot connect to '127.0.0.1:1'" in result.stderr
    assert not profiles.exists()


def test_what_is_no_address_is_refused(perdure, profiles):
    result = perdure("probe", "localhost:8080", "any")
    assert result.exit_code == 2
    assert "is not a URL: give one such as 'https://host/v1'" in result.stderr


def test_a_run_uses_what_was_learned_and_the_same_key(perdure, profiles, monkeypatch):
    monkeypatch.setenv("QUIRKY_KEY", "very-secret")
    with Playback(QuirkyServer(Quirks(key="very-secret", tools="refused"))) as server:
        url = f"{server.base_url}/v1"
        assert perdure("probe", url, "quirky", "--key-env", "QUIRKY_KEY").exit_code == 0
        result = perdure("run", "-q", "-m", f"{url}#quirky", "Which colour has grass?")
    assert result.exit_code == 0, result.output
    assert "green" in result.stdout
    assert "tools" not in server.received[-1].json()
    assert len(list(profiles.iterdir())) == 1
