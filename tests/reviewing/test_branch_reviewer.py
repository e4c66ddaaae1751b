"""A branch of a real repository is reviewed by models that follow a script."""

import pytest

from perdure import Agent, ProviderDown
from perdure.core.error import ConfigError, PerdureError
from perdure.reviewing import BranchReviewer, Review
from perdure.testing import call
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
