"""A branch of a real repository is reviewed by models that follow a script."""

from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, ConfigError, Limits, PerdureError, ProviderDown, Usage
from perdure._work.judging.reviews import reviewer as branch_reviewer
from perdure._work.judging.reviews.reviewer import INSTRUCTIONS
from perdure.evals import BranchReviewer, FailedReviewer, Finding, Review, ReviewedFinding
from perdure.testing import Reply, call
from tests.coming_from.shows import shows
from tests.reviewing.conftest import FINDING, answer, git, reviewer


async def review(repository, *models, **options) -> Review:
    return await BranchReviewer(list(models), folder=repository, **options).review()


@shows("glue", "package agents", "package agents/glue-review")
async def test_a_model_reads_the_diff_and_its_findings_have_severity_place_and_fix(repository):
    model = reviewer(call("git_diff", base="main"), call("read", path="boat.py"), answer({}))
    done = await review(repository, model)
    (found,) = done.findings
    assert (found.finding.severity, found.finding.file, found.finding.line) == ("major", "boat.py", 2)
    assert found.finding.fix == FINDING["fix"]
    assert found.is_changed_file
    assert done.commit == git(repository, "rev-parse", "HEAD").strip()
    first, second, third = model.requests
    assert "return miles / hours" in str(first.messages[0].text)
    assert "return miles / hours" in str(second.messages[-1])
    assert "return miles / hours" in str(third.messages[-1])
    names = {each.name for each in first.tools} - {"final_answer"}
    assert names == {"git_diff", "git_log", "git_show", "read", "glob", "grep"}


async def test_the_prompt_is_labelled_untrusted_and_has_no_secrets(repository):
    model = reviewer(answer())
    await review(repository, model)
    (prompt,) = model.requests[0].messages
    assert prompt.labels == ("untrusted",)
    assert "canary-secret" not in str(model.requests)


async def test_files_are_left_out_by_patterns(repository):
    model = reviewer(call("git_diff", base="main"), answer())
    await review(repository, model, exclude=["*.lock"])
    assert "uv.lock" not in str(model.requests)
    model = reviewer(answer())
    await review(repository, model, include=["*.lock"])
    assert "uv.lock" in str(model.requests)
    assert "boat.py" not in str(model.requests)


async def test_of_several_models_two_have_to_agree(repository):
    other = {"file": "crew.py", "line": 1, "title": "crew is too small"}
    done = await review(
        repository, reviewer(answer({}), name="a"), reviewer(answer({"line": 1}, other), name="b"), reviewer(answer())
    )
    (found,) = done.findings
    assert found.models == ("a", "b")
    assert found.agreement == 0.67
    (left_out,) = done.left_out
    assert left_out.finding.file == "crew.py"
    assert not left_out.is_changed_file


async def test_of_two_models_both_have_to_agree_and_models_of_one_name_are_numbered(repository):
    done = await review(repository, reviewer(answer({}), name="a"), reviewer(answer(), name="a"))
    assert (done.findings, [each.models for each in done.left_out]) == ((), [("a",)])
    three = [reviewer(answer({}), name="a") for _ in range(3)]
    assert (await review(repository, *three)).models == ("a", "a #2", "a #3")


@pytest.mark.parametrize(("line", "kept"), [(1, 1), (2, 2), (0, None), (-1, None), (999, None)])
async def test_a_line_that_the_file_does_not_have_is_left_out(repository, line, kept):
    (found,) = (await review(repository, reviewer(answer({"line": line})))).findings
    assert found.finding.line == kept


async def test_one_model_is_enough_if_the_caller_says_so(repository):
    done = await review(repository, reviewer(answer({}), name="a"), reviewer(answer(), name="b"), agree=1)
    assert [each.models for each in done.findings] == [("a",)]


async def test_a_model_that_fails_leaves_the_review_to_the_others(repository):
    done = await review(repository, reviewer(ProviderDown("it is down"), name="a"), reviewer(answer({}), name="b"))
    assert [each.finding.title for each in done.findings] == [FINDING["title"]]
    assert done.models == ("b",)
    assert [(each.model, "it is down" in each.problem) for each in done.failed] == [("a", True)]


async def test_without_any_review_there_is_an_error_that_names_every_problem(repository):
    with pytest.raises(PerdureError, match=r"no model returned a review \(a: .*it is down"):
        await review(repository, reviewer(ProviderDown("it is down"), name="a"))


async def test_places_are_looked_up_in_the_repository(repository):
    model = reviewer(answer({"line": 999}, {"file": "./boat.py"}, {"file": "gone.py"}, {"file": "../../etc/passwd"}))
    done = await review(repository, model)
    assert [(each.finding.file, each.finding.line) for each in done.findings] == [("boat.py", None), ("boat.py", 2)]
    assert [each.finding.file for each in done.left_out] == ["../../etc/passwd", "gone.py"]


async def test_a_file_that_the_branch_deletes_exists_for_a_review(repository):
    git(repository, "rm", "-q", "crew.py")
    git(repository, "commit", "-q", "-m", "No crew")
    done = await review(repository, reviewer(answer({"file": "crew.py", "line": 1})))
    assert [(each.finding.file, each.finding.line) for each in done.findings] == [("crew.py", None)]


async def test_a_branch_without_changes_is_reviewed_without_a_model(repository):
    model = reviewer(answer({}))
    done = await review(repository, model, base="faster")
    assert (done.findings, model.requests) == ((), [])


async def test_a_long_diff_is_cut_and_the_model_is_told_how_to_read_on(repository):
    (repository / "long.txt").write_text("line\n" * 30_000)
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "Long")
    model = reviewer(answer())
    await review(repository, model)
    prompt = str(model.requests[0].messages[0].text)
    assert len(prompt) < 70_000
    assert "git_diff(base='main', path=…)" in prompt


async def test_the_sessions_of_the_models_are_stored(repository, tmp_path):
    store = f"sqlite:{tmp_path / 'reviews.db'}"
    done = await review(repository, reviewer(answer({}), name="a"), store=store)
    async with Agent("demo", store=store) as agent:
        prompt, reply = await agent.session(done.sessions[0]).messages()
    assert "Review what this branch adds to main" in prompt.text
    assert str(FINDING["title"]) in reply.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base": "--output=x"}, r"BranchReviewer\(base=…\): '--output=x' is no revision"),
        ({"agree": 0}, r"BranchReviewer\(agree=0\): give a whole number, 1 or more"),
        ({"exclude": ["/etc/*"]}, r"BranchReviewer\(exclude=…\): '/etc/\*': a pattern is relative"),
        ({"guide": 3}, r"BranchReviewer\(guide=3\)"),
    ],
)
def test_options_that_cannot_be_used_are_refused(repository, options, message):
    with pytest.raises(ConfigError, match=message):
        BranchReviewer([reviewer(answer())], folder=repository, **options)


@pytest.mark.parametrize("models", [[], "demo"])
def test_a_review_needs_a_list_of_models(repository, models):
    with pytest.raises(ConfigError, match="give a list of models"):
        BranchReviewer(models, folder=repository)


async def test_a_base_that_does_not_exist_is_a_clear_error(repository):
    with pytest.raises(ConfigError, match=r"the branch cannot be compared with 'develop': git failed"):
        await review(repository, reviewer(answer()), base="develop")


async def test_a_folder_without_a_repository_is_a_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="is in no git repository"):
        await review(tmp_path, reviewer(answer()))


def found(*models: str, agreement: float = 1.0, **changes: Any) -> ReviewedFinding:
    """The finding of these models."""
    is_changed = changes.pop("is_changed_file", True)
    return ReviewedFinding(Finding(**{**FINDING, **changes}), models, agreement, is_changed)


async def test_a_review_has_what_all_models_found_and_wrote(repository: Path) -> None:
    a, b = (
        reviewer(answer({}), name="a"),
        reviewer(answer({}, {"file": "crew.py", "line": 1}, summary="Fine."), name="b"),
    )
    done = await review(repository, a, b, reviewer(ProviderDown("it is down"), name="c"))
    assert done == Review(
        base="main",
        commit=git(repository, "rev-parse", "HEAD").strip(),
        models=("a", "b"),
        summaries=("The speed is computed now.", "Fine."),
        findings=(found("a", "b"),),
        left_out=(found("b", agreement=0.5, file="crew.py", line=1, is_changed_file=False),),
        failed=(FailedReviewer("c", "it is down"),),
        sessions=done.sessions,
    )
    begins = done.sessions[0].removesuffix("-1")
    assert done.sessions == (f"{begins}-1", f"{begins}-2", f"{begins}-3")
    assert begins.startswith("review-")
    assert done.to_json()["models"] == ("a", "b")


@pytest.mark.parametrize(("costs", "total"), [((0.5, 0.25), 0.75), ((0.5, None), None), ((0.0, 0.5), 0.5)])
async def test_the_cost_of_a_review_is_that_of_all_models_if_it_is_known(
    repository: Path, costs: tuple[float | None, ...], total: float | None
) -> None:
    replies = [Reply(answer({}), usage=Usage(9, 1, reported_usd=each)) for each in costs]
    assert (await review(repository, *[reviewer(each) for each in replies])).cost_usd == total


async def test_a_model_that_reaches_a_limit_has_no_review(repository: Path) -> None:
    script = [call("read", path="boat.py")] * 3
    with pytest.raises(PerdureError) as raised:
        await review(repository, reviewer(*script, name="a"), reviewer(*script, name="b"), limits=Limits(max_turns=1))
    problem = "its run ended as limit (max_turns)"
    assert str(raised.value) == (
        f"no model returned a review (a: {problem}; b: {problem}); check the models with: perdure models"
    )


@pytest.mark.parametrize(("guide", "added"), [("  Be strict.\n", "\nBe strict.\n"), (" \n", ""), ("", "")])
async def test_a_guide_is_added_to_the_instructions(repository: Path, guide: str, added: str) -> None:
    model = reviewer(answer())
    await review(repository, model, guide=guide)
    assert model.requests[0].instructions == INSTRUCTIONS + added


@pytest.mark.parametrize(
    ("most", "listed"),
    [(3, "boat.py\nuv.lock"), (2, "boat.py\nuv.lock"), (1, "boat.py\n… and 1 more")],
)
async def test_a_prompt_has_the_commits_the_changed_files_and_the_diff(
    repository: Path, monkeypatch: pytest.MonkeyPatch, most: int, listed: str
) -> None:
    monkeypatch.setattr(branch_reviewer, "MOST_LISTED_FILES", most)
    model = reviewer(answer())
    await review(repository, model)
    head, _, diff = model.requests[0].messages[0].text.partition("Diff:\n")
    commit = git(repository, "rev-parse", "--short", "HEAD").strip()
    assert head == (
        f"Review what this branch adds to main.\n\nCommits:\n{commit} Speed is computed\n\nChanged files:\n{listed}\n\n"
    )
    assert diff.startswith("diff --git a/boat.py b/boat.py")
    assert diff.endswith("+version = 1\n")


async def test_a_reviewer_knows_the_names_of_its_models_and_its_limits(repository: Path) -> None:
    models = [reviewer(answer(), name=each) for each in ("a", "b", "a", "a #2", "ab")]
    assert BranchReviewer(models, folder=repository).model_names == ["a", "b", "a #2", "a #2 #2", "ab"]


async def test_a_review_without_changes_names_what_was_compared(repository: Path) -> None:
    done = await review(repository, reviewer(answer({})), base="faster")
    assert done == Review(base="faster", commit=git(repository, "rev-parse", "HEAD").strip(), models=())


@pytest.mark.parametrize(("count", "needed"), [(1, 1), (2, 2), (3, 2)])
async def test_more_agreement_than_there_are_reviews_is_not_asked_for(
    repository: Path, count: int, needed: int
) -> None:
    models = [reviewer(answer({}), name=f"m{place}") for place in range(needed)]
    others = [reviewer(answer(), name=f"o{place}") for place in range(count - needed)]
    done = await review(repository, *models, *others, agree=None if count == 3 else 9)
    assert [each.models for each in done.findings] == [tuple(f"m{place}" for place in range(needed))]


@pytest.mark.parametrize(
    ("text", "line", "kept"),
    [("a\nb\n", 2, 2), ("a\nb\n", 3, None), ("a\nb", 2, 2), ("a\nb", 3, None), ("a\n\n", 2, 2), ("", 1, None)],
)
async def test_the_last_line_of_a_file_is_kept_and_the_one_behind_it_is_not(
    repository: Path, text: str, line: int, kept: int | None
) -> None:
    (repository / "boat.py").write_text(text)
    (found,) = (await review(repository, reviewer(answer({"line": line})))).findings
    assert found.finding.line == kept


async def test_the_prompt_has_no_more_of_long_commit_messages_and_names_than_fits(repository):
    long = "x" * 100
    for number in range(250):
        (repository / f"{number:03}-{long}.txt").write_text("a\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "Subject\n\n" + "word " * 20_000)
    model = reviewer(answer())
    await review(repository, model)
    text = str(model.requests[0].messages[0].text)
    commits, _, rest = text.partition("Changed files:\n")
    assert len(commits) < branch_reviewer.MOST_LOG_BYTES + 200
    assert "[cut off after 20,000 bytes: read the rest with git_log]" in commits
    names = rest.partition("\n\nDiff:")[0]
    assert len(names) < branch_reviewer.MOST_LISTED_CHARACTERS + 100
    assert " more" in names.splitlines()[-1]
