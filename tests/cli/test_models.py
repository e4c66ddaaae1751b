"""`perdure models`: who can answer, and what to set so that more can."""

import json
import socket

import pytest

from perdure._models.catalogue.providers import PROVIDERS
from tests.coming_from.shows import shows
from tests.wire.server import Playback, json_reply


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch, tmp_path):
    for variable in {name for each in PROVIDERS for name in (*each.key_variables, *each.url_variables)}:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")  # nobody listens there
    monkeypatch.setenv("VLLM_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("LMSTUDIO_BASE_URL", "http://127.0.0.1:1/v1")


def lines_of(result):
    assert result.exit_code == 0, result.output
    return {line.split()[1]: line for line in result.stdout.splitlines()}


def test_every_provider_is_a_line_that_says_what_to_set(perdure):
    lines = lines_of(perdure("models"))
    assert set(lines) == {each.name for each in PROVIDERS}
    assert lines["anthropic"].split(maxsplit=4) == [
        *("no", "anthropic", "claude-sonnet-5-5", "anthropic"),
        "set ANTHROPIC_API_KEY",
    ]
    assert lines["demo"].startswith("yes  demo")


def test_a_key_makes_a_provider_available_and_is_not_shown(perdure, monkeypatch):
    monkeypatch.setenv("GROQ_API_KEY", "very-secret")
    result = perdure("models")
    assert lines_of(result)["groq"].startswith("yes  groq")
    assert "GROQ_API_KEY is set" in result.output
    assert "very-secret" not in result.output


def test_a_server_on_this_machine_is_looked_for(perdure, monkeypatch):
    assert "no server answers at http://127.0.0.1:1/v1" in lines_of(perdure("models"))["ollama"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("OLLAMA_HOST", host)
        line = lines_of(perdure("models"))["ollama"]
    assert line.startswith("yes")
    assert f"runs at http://{host}/v1" in line


def test_programs_get_json(perdure):
    result = perdure("models", "--json")
    offers = {each["name"]: each for each in map(json.loads, result.stdout.splitlines())}
    assert offers["gemini"] == {
        "name": "gemini",
        "title": "Google Gemini",
        "available": False,
        "why": "set GEMINI_API_KEY or GOOGLE_API_KEY",
        "default_model": "gemini-3.8-flash",
        "wire": "gemini",
        "base_url": "https://generativelanguage.googleapis.com/v1beta",
        "variables": ["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        "aliases": ["google", "google-gla"],
        "page": "https://aistudio.google.com/apikey",
    }


@shows("glove", "getAvailableProviders.models", "provider.models")
def test_a_provider_is_asked_which_models_it_has(perdure, monkeypatch):
    listed = {"data": [{"id": "small"}, {"id": "large\x1b[2J", "context_length": 8192}]}
    with Playback(lambda _: json_reply(listed)) as server:
        monkeypatch.setenv("VLLM_BASE_URL", f"{server.base_url}/v1")
        result = perdure("models", "vllm")
        as_json = perdure("models", "vllm", "--json")
    assert result.stdout.splitlines() == ["large␛[2J  context of 8192 tokens", "small"]
    assert "2 models; use one with: perdure run -m vllm:MODEL" in result.stderr
    assert json.loads(as_json.stdout.splitlines()[1]) == {"name": "small", "context_tokens": None}


@pytest.mark.parametrize(
    ("provider", "complaint", "code"),
    [
        ("vllm", "cannot connect to '127.0.0.1:1'", 69),
        ("openai", "openai:gpt-6.1-sol needs an API key, and none is set: set OPENAI_API_KEY", 2),
        ("opnai", "did you mean 'openai'?", 2),
        ("demo", "'demo' does not list its models", 2),
    ],
)
def test_who_cannot_be_asked_is_told_with_what_to_do(perdure, provider, complaint, code):
    result = perdure("models", provider)
    assert result.exit_code == code
    assert result.stderr.startswith("error: ")
    assert complaint in result.stderr


def test_a_key_that_is_not_good_is_told_as_such(perdure, monkeypatch):
    with Playback(lambda _: json_reply({"error": {"message": "Incorrect API key provided"}}, 401)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.base_url}/v1")
        result = perdure("models", "openai")
    assert result.exit_code == 69
    assert "Incorrect API key" in result.stderr
