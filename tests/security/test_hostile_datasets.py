"""Datasets of others: without trust they choose no model, limit or attachment, and everything in them is bounded."""

import asyncio
import json
import time

import pytest

from perdure import Agent, ConfigError, Limits, tool
from perdure._cli.run.folder_trust import load_folder_trust
from perdure.context import Command, MentionSettings
from perdure.evals import BadDataset, Case, Dataset, Evaluation, load_dataset
from perdure.events import MessageAdded, RunStarted
from perdure.models import Price
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call

PATIENCE = 60
KEY = "what only the user may read"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a dataset in the working folder, and returns its name."""
    monkeypatch.chdir(tmp_path)

    def to_file(text, name="cases.toml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return name

    return to_file


async def run_cases(dataset, agent, **options):
    """Run an evaluation; return the report, and the stored entries of its only run."""
    store = open_store("memory:")
    async with asyncio.timeout(PATIENCE):
        report = await Evaluation(dataset, agent, store=store, **options).run()
    return report, await store.read(report.results[0].session_id)


def make_tool(name):
    return tool(lambda: "nothing", name=name, description="Look.")


def refuse(path, **options):
    with pytest.raises(BadDataset) as caught:
        load_dataset(path, **options)
    return str(caught.value)


# -- the model ---------------------------------------------------------------------------------------------------------

HIDDEN = [
    '{name = "model", model = "MODEL"}',
    '{name = "all_of", graders = ["contains", {name = "model", model = "MODEL"}]}',
    '{name = "any_of", graders = [{name = "all_of", graders = [{name = "model", model = "MODEL"}]}]}',
    '{name = "model", model = "MODEL", as = "contains"}',
]


@pytest.mark.parametrize("model", ["http://evil.example/v1#m", "openai:gpt-5-pro", "local:/tmp/evil.gguf", "demo"])
@pytest.mark.parametrize("grader", HIDDEN)
def test_a_dataset_does_not_choose_the_model_of_a_grader(write, model, grader):
    grader = grader.replace("MODEL", model)
    shared = f'graders = [{grader}]\n[[case]]\nprompt = "x"\n'
    own = f'[[case]]\nprompt = "x"\ngraders = [{grader}]\n'
    for text, line in ((shared, 1), (own, 3)):
        told = refuse(write(text))
        assert f"cases.toml:{line}: " in told
        assert repr(model) in told
        assert "--trust" in told
        assert "--grader-model" in told
        assert load_dataset(write(text), trusted=True).cases


def test_a_line_of_json_does_not_choose_the_model_of_a_grader_either(write):
    line = json.dumps({"prompt": "x", "graders": [{"name": "model", "model": "http://evil.example#m"}]})
    assert "cases.jsonl:2: the grader 'model' names the model 'http://evil.example#m'" in refuse(
        write('{"prompt": "y"}\n' + line, "cases.jsonl")
    )


def test_a_grader_without_a_model_takes_that_of_the_user(write):
    dataset = load_dataset(write('[[case]]\nprompt = "x"\ngraders = [{name = "model", criteria = "It is polite."}]\n'))
    Evaluation(dataset, Agent("demo"), grader_model="demo")


# -- limits ------------------------------------------------------------------------------------------------------------


async def test_limits_of_a_dataset_only_ever_tighten(write):
    limits = "limits = {max_turns = 1000, max_cost_usd = 900.0, timeout_seconds = 3.0, allowed_tools = ['a', 'c']}\n"
    path = write(f'[[case]]\nprompt = "x"\ngraders = ["contains"]\nexpected = "x"\n{limits}')
    own = Limits(max_turns=2, max_cost_usd=0.5, token_budget=500, max_parallel_tools=1, allowed_tools=("a", "b"))

    tools = [make_tool(name) for name in "abc"]

    async def used(dataset):
        agent = Agent(
            ScriptedModel("x", price=Price(input_usd=1.0, output_usd=1.0), repeat_last=True), tools=tools, limits=own
        )
        _, entries = await run_cases(dataset, agent)
        return next(each.event for each in entries if isinstance(each.event, RunStarted)).options["limits"]

    lowered = await used(load_dataset(path))
    assert (lowered["max_turns"], lowered["max_cost_usd"], lowered["token_budget"]) == (2, 0.5, 500)
    assert (lowered["timeout_seconds"], lowered["max_parallel_tools"], lowered["allowed_tools"]) == (3.0, 1, ("a",))
    assert (await used(load_dataset(path, trusted=True)))["max_turns"] == 1000


async def test_the_limits_are_those_of_each_agent_and_apply(write):
    path = write('[[case]]\nprompt = "x"\ngraders = ["contains"]\nexpected = "x"\nlimits = {max_turns = 1000}\n')
    model = ScriptedModel(call("look"), repeat_last=True)
    agent = Agent(model, tools=[make_tool("look")], limits=Limits(max_turns=2))
    report, _ = await run_cases(load_dataset(path), agent)
    assert (report.results[0].status, len(model.requests)) == ("limit", 2)


# -- attachments and commands ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["Read @notes.txt", "@notes.txt", "see @./notes.txt and @sub/", "@'notes.txt'"])
async def test_a_prompt_of_a_dataset_attaches_no_file(write, tmp_path, prompt):
    (tmp_path / "notes.txt").write_text(KEY)
    (tmp_path / "sub").mkdir()
    path = write(f'[[case]]\nprompt = "{prompt}"\ngraders = ["contains"]\nexpected = "x"\n')

    async def sent(dataset):
        model = ScriptedModel("x")
        await run_cases(dataset, Agent(model, mentions=MentionSettings(tmp_path)))
        return repr(model.requests[0].messages)

    assert KEY not in await sent(load_dataset(path))
    if "sub" not in prompt and "'" not in prompt:
        assert KEY in await sent(load_dataset(path, trusted=True))


async def test_a_prompt_of_a_dataset_runs_no_command(write):
    ran = []
    agent = Agent(ScriptedModel("x"), commands=[Command("wipe", lambda *given: ran.append(given), "Wipes.")])
    await run_cases(
        load_dataset(write('[[case]]\nprompt = "/wipe all"\ngraders = ["contains"]\nexpected = "x"')), agent
    )
    assert ran == []


async def test_the_prompt_of_a_dataset_is_untrusted_text(write):
    path = write('[[case]]\nprompt = "x"\ngraders = ["contains"]\nexpected = "x"\n')

    async def labels(dataset):
        _, entries = await run_cases(dataset, Agent(ScriptedModel("x")))
        added = [each.event.message for each in entries if isinstance(each.event, MessageAdded)]
        return next(each.labels for each in added if each.role == "user")

    assert await labels(load_dataset(path)) == ("untrusted",)
    assert await labels(load_dataset(path, trusted=True)) == ()
    assert await labels(Dataset("own", [Case(prompt="x", expected="x", graders=["equals"])])) == ()


# -- everything is bounded ---------------------------------------------------------------------------------------------

CASE = '[[case]]\nprompt = "x"\n'


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        (f"{CASE}repeat = 100000000", 3, "repeat is 100000000: give a whole number, 1 or more, and at most 1000"),
        (f"repeat = 100000000\n{CASE}", 1, "repeat is 100000000"),
        (f'name = "{"n" * 201}"\n{CASE}', 1, "name has 201 characters"),
        (CASE + "tags = [" + '"t", ' * 101 + "]", 3, "at most 100"),
        (f'{CASE}tags = ["{"t" * 101}"]', 3, "at most 100, of 100 characters"),
        (f'{CASE}tags = ["a\\u001b[2J"]', 3, "give a list of words"),
        (CASE + "graders = [" + '"contains", ' * 101 + "]", 3, "there are 101 graders here"),
        (
            CASE + 'graders = [{name = "all_of", graders = [' + '"equals", ' * 100 + "]}]",
            3,
            "there are 101 graders here",
        ),
        (f'{CASE}graders = [{{name = "matches", pattern = "{"a" * 10_001}"}}]', 3, "pattern has 10,001 characters"),
        (
            f'{CASE}graders = [{{name = "matches", pattern = "a", timeout_seconds = 1e9}}]',
            3,
            "timeout_seconds is 1e+09: give at most 60",
        ),
        (f'{CASE}graders = [{{name = "contains", as = "a\\nb"}}]', 3, "as is 'a\\nb': give one line of text"),
        (f'{CASE}graders = [{{name = "contains", as = "{"a" * 101}"}}]', 3, "of at most 100 characters"),
        (f'{CASE}graders = [{{name = "model", criteria = "{"c" * 100_001}"}}]', 3, "criteria is"),
        (f'{CASE}graders = [{{name = "model", passing_score = 7}}]', 3, "passing_score is 7"),
        (f"{CASE}limits = {{max_turns = -1}}", 3, "above zero"),
    ],
)
def test_what_is_too_much_is_refused_with_its_line_and_what_to_do(write, text, line, told):
    said = refuse(write(text))
    assert f"cases.toml:{line}: " in said
    assert told in said


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ('{"prompt": "x"}\n' * 10_001, 10_001, "there are more than 10,000 cases, which are the most: split the file"),
        ('{"prompt": "' + "x" * 1_000_001 + '"}', 1, "a text of at most 1,000,000 characters"),
        ('{"prompt": "x", "expected": ' + "[" * 500 + "]" * 500 + "}", 1, "nested deeper than 24 levels"),
        ('{"prompt": "x", "expected": [' + "[]," * 20_000 + "[]]}", 1, "more than 10,000 values"),
        ('{"prompt": "x", "repeat": 100000000}', 1, "at most 1000"),
        ("no JSON\n" * 100_000, 50, "this is no JSON"),
        ('{"prompt": "x", "deps": ' + "9" * 5000 + "}", 1, "digits"),
    ],
)
def test_what_is_too_much_on_lines_of_json_is_refused_quickly(write, text, line, told):
    began = time.perf_counter()
    said = refuse(write(text, "cases.jsonl"))
    assert f"cases.jsonl:{line}: " in said
    assert told in said
    assert time.perf_counter() - began < PATIENCE / 4
    assert len(said) < 20_000


def test_mistakes_on_every_line_are_not_all_looked_for(write):
    keys = ", ".join([f'"prompx{place}": 1' for place in range(5000)])
    began = time.perf_counter()
    said = refuse(write(("{" + keys + "}\n") * 50, "cases.jsonl"))
    assert len(said.splitlines()) == 50
    assert time.perf_counter() - began < PATIENCE / 4


def test_ten_thousand_prompts_that_begin_alike_get_ids_quickly(write):
    began = time.perf_counter()
    dataset = load_dataset(write('{"prompt": "x"}\n' * 10_000, "cases.jsonl"))
    assert [each.id for each in dataset.cases[:2]] == ["x", "x-2"]
    assert dataset.cases[-1].id == "x-10000"
    assert time.perf_counter() - began < PATIENCE / 4


def test_more_runs_than_can_be_listed_are_refused_before_the_first(write):
    dataset = load_dataset(write('repeat = 1000\ngraders = ["contains"]\n' + '[[case]]\nprompt = "x"\n' * 101))
    with pytest.raises(ConfigError, match=r"101 cases, which with repeat and 1 agents are 101,000 runs, and 100,000"):
        Evaluation(dataset, Agent("demo"))


def test_a_schema_of_a_dataset_fetches_nothing_and_is_bounded(write):
    for reference in ("http://127.0.0.1:1/schema", "file:///etc/passwd"):
        text = f'{CASE}graders = [{{name = "schema", schema = {{"$ref" = "{reference}"}}}}]'
        assert "cases.toml:3: " in refuse(write(text))


async def test_a_pattern_that_never_ends_is_ended(write):
    path = write('[[case]]\nprompt = "x"\ngraders = [{name = "matches", pattern = "(a+)+$", timeout_seconds = 0.2}]\n')
    report, _ = await run_cases(load_dataset(path), Agent(ScriptedModel("a" * 60 + "b")))
    assert "took longer than 0.2 seconds" in report.results[0].error


# -- the command -------------------------------------------------------------------------------------------------------

FILE = """
limits = {max_turns = 1000}
[[case]]
id = "a"
prompt = "Read @notes.txt"
expected = "x"
graders = ["contains"]
"""
AGENTS = """
from perdure import Agent, Limits, tool
from perdure.models import Price
from perdure.context import Command
from perdure.context import MentionSettings
from perdure.testing import ScriptedModel

def answer(request):
    return "x" if "SECRET" not in repr(request.messages) else "seen"

agent = Agent(ScriptedModel(answer), limits=Limits(max_turns=3), mentions=MentionSettings("."))
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    (folder / "notes.txt").write_text("SECRET")
    (folder / "agents.py").write_text(AGENTS)
    (folder / "cases.toml").write_text(FILE)
    return folder


def evaluate(*words):
    from click.testing import CliRunner

    from perdure._cli.main import root_command

    return CliRunner().invoke(root_command, ["eval", "cases.toml", "--agent", "agents.py:agent", *words])


def test_the_command_attaches_nothing_and_names_the_limits_that_it_lowers(project):
    result = evaluate()
    assert result.exit_code == 0, result.output
    assert "cases.toml: case 'a' has max_turns = 1000, and 3 of the agent is used" in result.stderr
    assert "--trust" in result.stderr


@pytest.mark.parametrize("how", ["the option", "the folder"])
def test_the_command_attaches_what_a_trusted_dataset_names(project, how):
    if how == "the folder":
        load_folder_trust().trust(project)
    result = evaluate(*(["--trust"] if how == "the option" else []))
    assert result.exit_code == 1, result.output
    assert "max_turns" not in result.stderr


def test_a_link_from_a_trusted_folder_to_a_dataset_elsewhere_brings_no_trust(project, tmp_path):
    load_folder_trust().trust(project)
    (project / "cases.toml").rename(tmp_path / "evil.toml")
    (project / "cases.toml").symlink_to(tmp_path / "evil.toml")
    assert evaluate().exit_code == 0


def test_a_time_limit_of_the_command_line_holds_for_cases_with_a_higher_one(project):
    (project / "agents.py").write_text(
        "import asyncio\nfrom perdure import Agent\nfrom perdure.testing import ScriptedModel\n\n"
        "async def answer(request):\n    await asyncio.Event().wait()\n\nagent = Agent(ScriptedModel(answer))\n"
    )
    (project / "cases.toml").write_text(FILE.replace("max_turns = 1000", "timeout_seconds = 1e9"))
    result = evaluate("--limit-seconds", "0.05", "--json")
    assert json.loads(result.stdout)["results"][0]["reason"] == "timeout"
