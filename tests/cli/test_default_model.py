"""Which model answers when nobody names one."""

import pytest

from perdure._cli.run.model import ModelChoice, choose_model, is_in_process_model
from perdure._models.catalogue.providers import PROVIDERS


@pytest.fixture(autouse=True)
def without_keys(monkeypatch):
    """A machine that has no key, and no weights either."""
    for variable in ("PERDURE_MODEL", *[name for each in PROVIDERS for name in each.key_variables]):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("perdure._models.local.weights.get_install_command", lambda: "pip install it")


def test_whoever_is_named_answers(monkeypatch):
    monkeypatch.setenv("PERDURE_MODEL", "demo")
    assert choose_model("local") == ModelChoice("local", "")


def test_the_variable_comes_first(monkeypatch):
    monkeypatch.setenv("PERDURE_MODEL", "demo")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    assert choose_model() == ModelChoice("demo", "PERDURE_MODEL is set")


def test_then_comes_the_first_provider_whose_key_is_here(monkeypatch):
    monkeypatch.setenv("GROQ_API_KEY", "key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    model, why = choose_model()
    assert model.startswith("anthropic:")
    assert why == "ANTHROPIC_API_KEY is set"


def test_whoever_needs_no_key_has_to_be_named(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("OLLAMA_API_KEY", "key")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "key")  # has no usual model, and no address
    assert choose_model().model == "demo"


def test_without_a_key_it_is_the_model_that_runs_here(monkeypatch):
    monkeypatch.setattr("perdure._models.local.weights.get_install_command", lambda: "")
    model, reason = choose_model()
    assert model == "local"
    assert reason == (
        "no provider key is set; it is tiny (135 million parameters), runs in this process, and is often wrong; "
        "for good answers set a key, such as ANTHROPIC_API_KEY"
    )


def test_at_last_it_is_the_demonstration_and_it_says_what_would_do_better():
    assert choose_model().model == "demo"
    assert "no local model is installed: pip install it; for good answers set a key" in choose_model().reason


def test_the_choice_is_told_and_kept(perdure, monkeypatch):
    monkeypatch.delenv("PERDURE_MODEL")
    result = perdure("run", "--session", "s", "Calculate 6 * 7")
    assert result.stderr.startswith("model demo: no provider key is set")
    assert "model" not in perdure("run", "--session", "s", "--model", "demo", "Calculate 6 * 7").stderr.split("\n")[0]
    assert "model" not in perdure("run", "-q", "--session", "s", "Calculate 6 * 7").stderr
    assert '"model":"demo"' in perdure("sessions", "show", "s", "--json").stdout


def test_what_files_suggest_comes_after_the_variable_and_before_keys(monkeypatch):
    suggested = ModelChoice("openai:x", "perdure.toml names it")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    assert choose_model(None, suggested) == suggested
    assert choose_model("local", suggested) == ModelChoice("local", "")
    monkeypatch.setenv("PERDURE_MODEL", "demo")
    assert choose_model(None, suggested) == ModelChoice("demo", "PERDURE_MODEL is set")


@pytest.mark.parametrize(
    ("model", "little"),
    [("local", True), ("local:smollm2", True), ("Demo/words", True), ("localhost:x", False), ("openai:local", False)],
)
def test_what_runs_in_this_process_has_little_room(model, little):
    assert is_in_process_model(model) is little
