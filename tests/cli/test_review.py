"""`perdure review`: a branch is reviewed from the command line."""

import json
from types import SimpleNamespace

import msgspec
import pytest

from perdure import ProviderDown
from perdure.models import register
from perdure.testing import ScriptedModel
from tests.reviewing.conftest import answer, repository, reviewer, template

__all__ = ["repository", "template"]


@pytest.fixture
def branch(perdure, repository, monkeypatch):
    """The command, in a repository with a branch; `script(…)` is what the model `reviewer:NAME` does."""
    monkeypatch.chdir(repository)
    scripts: dict[str, ScriptedModel] = {}
    monkeypatch.setattr("perdure._models.registry._factories", {})
    register("reviewer", lambda name: scripts[name])

    def script(name, *steps):
        scripts[name] = reviewer(*steps, name=name)
        return scripts[name]

    perdure.script = script
    return perdure


def test_a_review_is_a_page_of_markdown(branch):
    branch.script("one", answer({}))
    result = branch("review", "-m", "reviewer:one")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("# Review of ")
    assert "## 1. major: speed divides by zero\n\n`boat.py:2`" in result.stdout


def test_a_review_for_programs_is_json(branch):
    branch.script("one", answer({}))
    result = branch("review", "-m", "reviewer:one", "--json")
    done = json.loads(result.stdout)
    assert done["findings"][0]["finding"]["line"] == 2
    assert done["models"] == ["reviewer:one"]
    assert set(done) == {
        "base", "commit", "models", "summaries", "findings", "left_out", "failed", "sessions", "cost_usd",
    }  # fmt: skip


def test_a_bad_finding_fails_the_command_if_the_user_says_so(branch):
    branch.script("one", answer({}))
    assert branch("review", "-m", "reviewer:one", "--fail-on", "critical").exit_code == 0
    branch.script("one", answer({}))
    assert branch("review", "-m", "reviewer:one", "--fail-on", "major").exit_code == 1


def test_several_models_have_to_agree(branch):
    branch.script("one", answer({}))
    branch.script("two", answer({}, {"line": 1, "title": "no docstring"}))
    result = branch("review", "-m", "reviewer:one", "-m", "reviewer:two")
    assert "`boat.py:2` (2 of 2 models)" in result.stdout
    assert "- major `boat.py:1` no docstring" in result.stdout


def test_models_with_a_comma_are_asked_one_after_another(branch):
    branch.script("one", ProviderDown("it is down"))
    branch.script("two", answer({}))
    result = branch("review", "-m", "reviewer:one,reviewer:two")
    assert result.exit_code == 0, result.stderr
    assert "speed divides by zero" in result.stdout


def test_a_guide_is_given_to_the_model(branch, tmp_path):
    (tmp_path / "rules.md").write_text("Functions have type hints.")
    model = branch.script("one", answer())
    assert branch("review", "-m", "reviewer:one", "--guide", str(tmp_path / "rules.md")).exit_code == 0
    assert "Functions have type hints." in model.requests[0].instructions


def test_a_review_is_written_to_a_file(branch, tmp_path):
    branch.script("one", answer({}))
    result = branch("review", "-m", "reviewer:one", "-o", str(tmp_path / "review.md"))
    assert result.stdout == ""
    assert (tmp_path / "review.md").read_text().startswith("# Review of ")


def test_text_of_a_model_cannot_steer_the_terminal(branch):
    branch.script("one", answer({"problem": "\x1b[2J\x1b]0;owned\x07gone"}))
    result = branch("review", "-m", "reviewer:one")
    assert "\x1b" not in result.stdout
    assert "gone" in result.stdout


@pytest.mark.parametrize("form", ["--json", "--output"])
def test_text_of_a_model_cannot_steer_what_shows_the_file(branch, tmp_path, form):
    evil = "\x1b[2J\x1b]0;owned\x07\u202egone\u2066\r## 2. critical: forged\n## 3. forged\n<h2>forged</h2>"
    branch.script("one", answer(dict.fromkeys(("title", "problem", "fix", "done_when"), evil)))
    path = tmp_path / "review.md"
    result = branch("review", "-m", "reviewer:one", "-o", str(path), *(["--json"] if form == "--json" else []))
    assert result.exit_code == 0, result.stderr
    text = path.read_text()
    assert all(each.isprintable() or each == "\n" for each in text)
    if form == "--output":
        assert [each for each in text.splitlines() if each.startswith("## ")] == [
            each for each in text.splitlines() if each.startswith("## 1. major: ")
        ]
        assert "\n<h2>" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agree", "2"], "--agree 2: only 1 models review the branch"),
        (["develop"], "the branch cannot be compared with 'develop'"),
        (["--guide", "no-such-file"], "--guide no-such-file: "),
        (["-m", ","], "--model ',': name a model"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(branch, arguments, message):
    branch.script("one", answer())
    result = branch("review", *([] if "-m" in arguments else ["-m", "reviewer:one"]), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_model_that_returned_no_review_is_named_after_it(branch):
    branch.script("one", answer({}))
    branch.script("two", ProviderDown("it is down"))
    result = branch("review", "-m", "reviewer:one", "-m", "reviewer:two", "--agree", "1")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines() == ["reviewer:two returned no review: it is down"]


def test_without_a_model_it_is_the_one_of_perdure_run_and_the_reason_is_said(branch, monkeypatch):
    branch.script("one", answer({}))
    monkeypatch.setenv("PERDURE_MODEL", "reviewer:one")
    result = branch("review")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == "model reviewer:one: PERDURE_MODEL is set\n"
    branch.script("one", answer({}))
    assert branch("review", "--json").stderr == ""


@pytest.mark.parametrize(("names", "verb"), [(["one"], "reads"), (["one", "two"], "read")])
def test_at_a_terminal_it_says_who_reads_what(branch, monkeypatch, names, verb):
    notes: list[str] = []
    monkeypatch.setattr("perdure._cli.work.review.TerminalOutput.note", lambda _, text: notes.append(text))
    for name in names:
        branch.script(name, answer({}))
    monkeypatch.setattr("perdure._cli.work.review.sys", SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True)))
    result = branch("review", *[each for name in names for each in ("-m", f"reviewer:{name}")])
    assert result.exit_code == 0, result.stderr
    named = ", ".join([f"reviewer:{name}" for name in names])
    assert notes == [f"{named} {verb} the changes since main …"]


def test_a_guide_has_a_limit(branch, tmp_path, monkeypatch):
    monkeypatch.setattr("perdure._cli.work.review.MOST_GUIDE_BYTES", 2000)
    guide = tmp_path / "rules.md"
    for size, code in ((2000, 0), (2001, 2)):
        guide.write_text("x" * size)
        branch.script("one", answer())
        result = branch("review", "-m", "reviewer:one", "--guide", str(guide))
        assert result.exit_code == code, result.stderr
        told = f"error: --guide {guide}: the file has more than 2,000 bytes; shorten it\n"
        assert result.stderr == (told if code else "")


def test_where_the_review_was_written_is_said(branch, tmp_path):
    branch.script("one", answer({}))
    result = branch("review", "-m", "reviewer:one", "-o", str(tmp_path / "review.md"))
    assert result.stderr == f"the review is in {tmp_path / 'review.md'}\n"


def test_a_limit_of_the_cost_is_that_of_every_reviewer(branch):
    from perdure._cli.work.review import _build_limits
    from perdure._work.judging.reviews.reviewer import DEFAULT_LIMITS

    assert _build_limits(None) == DEFAULT_LIMITS
    assert _build_limits(0.5) == msgspec.structs.replace(DEFAULT_LIMITS, max_cost_usd=0.5)
