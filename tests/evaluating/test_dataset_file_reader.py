"""Datasets in TOML and JSONL, and their mistakes with file and line."""

import json

import pytest

from perdure import BadConfig, ConfigError, Limits
from perdure._work.judging.evals import reader
from perdure.evals import BadDataset, Case, Dataset, load_dataset

TOML = """\
name = "geography"
graders = ["contains"]
tags = ["all"]

[limits]
max_turns = 5

[[case]]
prompt = "Capital of France?"
expected = "Paris"
tags = ["europe"]

[[case]]
id = "tokyo"
prompt = "Capital of Japan?"
expected = ["Tokyo", "Japan"]
graders = [{name = "equals", ignore_case = true}]
limits = {timeout_seconds = 1.5}
repeat = 3
deps = {units = "km"}
output = {type = "object"}
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a dataset in the working folder, and returns its name."""
    monkeypatch.chdir(tmp_path)

    def to_file(text, name="cases.toml"):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    return to_file


def test_a_toml_file_has_cases_and_what_they_share(write):
    dataset = load_dataset(write(TOML))
    first, second = dataset.cases
    assert (dataset.name, dataset.path) == ("geography", "cases.toml")
    assert (first.id, first.expected, first.tags) == ("capital-of-france", "Paris", ("all", "europe"))
    assert (first.graders, first.limits, first.repeat) == (["contains"], Limits(max_turns=5), 1)
    assert (second.id, second.expected, second.repeat) == ("tokyo", ["Tokyo", "Japan"], 3)
    assert second.limits == Limits(timeout_seconds=1.5)
    assert (second.deps, second.output) == ({"units": "km"}, {"type": "object"})


def test_a_jsonl_file_has_a_case_on_each_line(write):
    lines = [{"prompt": "a", "expected": 1, "graders": ["equals"], "tags": ["x"]}, {"prompt": "b", "id": "second"}]
    text = "\ufeff" + "\n\n".join([json.dumps(each) for each in lines]) + "\r\n"
    dataset = load_dataset(write(text, "many cases.jsonl"))
    assert dataset.name == "many cases"
    assert [(case.id, case.expected, case.tags) for case in dataset.cases] == [("a", 1, ("x",)), ("second", None, ())]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[[case]]\nprompt = ", 2, "this is no TOML"),
        ('[[case]]\nexpected = "x"', 1, 'this case has no prompt: add prompt = "…"'),
        ('[[case]]\nprompt = "x"\nexpcted = 1', 3, "did you mean 'expected'?"),
        ("[[case]]\nprompt = 3", 2, "prompt is 3: give a text"),
        ('[[case]]\nprompt = "  "', 2, "give a text"),
        ('[[case]]\nprompt = "x"\n\ngraders = "contains"', 4, 'give a list, such as ["contains"]'),
        ('[[case]]\nprompt = "x"\ngraders = []', 3, "give a list"),
        ('[[case]]\nprompt = "x"\ngraders = ["contain"]', 3, "did you mean 'contains'?"),
        (
            '[[case]]\nprompt = "x"\ngraders = [\n  "equals",\n  {name = "matches"},\n]',
            5,
            "the grader 'matches'",
        ),
        ('[[case]]\nprompt = "x"\ngraders = [{name = "matches", pattern = "("}]', 3, "regular expression"),
        ('[[case]]\nprompt = "x"\ngraders = ["command"]', 3, "runs code: read the file, and then use --trust"),
        ('[[case]]\nprompt = "x"\ngraders = ["mine:judge"]', 3, "--trust"),
        ('[[case]]\nprompt = "x"\ntags = [1]', 3, "give a list of words"),
        ('[[case]]\nprompt = "x"\nlimits = 3', 3, "give a table"),
        ('[[case]]\nprompt = "x"\n[case.limits]\nmax_turns = 5\nmax_turn = 3', 5, "max_turns"),
        ('[[case]]\nprompt = "x"\n[case.limits]\n\nmax_turns = 0', 5, "above zero"),
        ('[[case]]\nprompt = "x"\nrepeat = 0', 3, "1 or more"),
        ('[[case]]\nprompt = "x"\nrepeat = true', 3, "1 or more"),
        ('[[case]]\nprompt = "x"\noutput = "int"', 3, "JSON Schema"),
        ('[[case]]\nprompt = "x"\nid = "a"\n[[case]]\nprompt = "y"\nid = "a"', 6, "is that of line 3 too"),
        (f'[[case]]\nprompt = "x"\nid = "{"i" * 101}"', 1, "at most 100 characters"),
        ('[[case]]\nprompt = "x"\nexpected = 1979-05-27', 3, "put it in quotes"),
        ('name = 3\n[[case]]\nprompt = "x"', 1, "give one line of text"),
        ('cases = 1\n[[case]]\nprompt = "x"', 1, "did you mean 'case'?"),
        ('\ncase = "x"', 2, "begin each one with [[case]]"),
        ('name = "empty"', 1, "there are no cases"),
    ],
)
def test_a_mistake_in_toml_is_reported_with_its_line(write, text, line, message):
    with pytest.raises(BadDataset) as caught:
        load_dataset(write(text))
    assert f"cases.toml:{line}: " in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('{"prompt": "x"}\n{"prompt": ', 2, "this is no JSON"),
        ('{"prompt": "x"}\n\n["x"]', 3, "a line has to be one JSON object"),
        ('{"prompt": "x"}\n{"promt": "x"}', 2, "did you mean 'prompt'?"),
        ('{"prompt": "x", "expected": NaN}', 1, "NaN is no number of JSON"),
        (b'{"prompt": "x"}\n{"prompt": "\xff"}', 2, "save the file as UTF-8"),
        ('{"prompt": "x", "expected": "\\ud800"}', 1, "cannot be stored"),
        ("[" * 100_000, 1, "nested too deep"),
        ("", 0, "there are no cases"),
    ],
)
def test_a_mistake_in_jsonl_is_reported_with_its_line(write, text, line, message):
    with pytest.raises(BadDataset) as caught:
        load_dataset(write(text, "cases.jsonl"))
    assert (f"cases.jsonl:{line}: " if line else "cases.jsonl: ") in str(caught.value)
    assert message in str(caught.value)


def test_all_mistakes_of_a_file_are_reported_in_its_order(write):
    with pytest.raises(BadDataset) as caught:
        load_dataset(write('[[case]]\nprompt = 1\n[[case]]\nid = "x"\n[[case]]\nprompt = "x"\ntag = 1'))
    assert [fault.line for fault in caught.value.faults] == [2, 3, 7]
    assert isinstance(caught.value, BadConfig)
    assert isinstance(caught.value, ConfigError)


def test_a_trusted_file_may_name_graders_that_run_code(write):
    text = '[[case]]\nprompt = "x"\ngraders = [{name = "command", command = "true"}, "mine:judge"]'
    assert len(load_dataset(write(text), trusted=True).cases[0].graders) == 2


@pytest.mark.parametrize("name", ["cases.yaml", "cases", "missing.toml", "missing.jsonl"])
def test_a_file_that_is_no_dataset_is_named(write, name):
    write("", "cases.yaml")
    write("", "cases")
    with pytest.raises(BadDataset, match=name):
        load_dataset(name)


@pytest.mark.parametrize("path", ["", None, 3])
def test_a_path_that_is_none_is_refused(path):
    with pytest.raises(ConfigError, match="name the dataset"):
        load_dataset(path)


def test_what_cases_share_is_used_unless_a_case_has_its_own(write):
    dataset = load_dataset(
        write(
            'graders = ["contains"]\ntags = ["all", "x"]\nrepeat = 2\n\n[[case]]\nprompt = "a"\ntags = ["x", "y"]\n\n'
            '[[case]]\nprompt = "b"\ngraders = ["equals"]\nrepeat = 1\nlimits = {allowed_tools = "read"}\n'
        )
    )
    assert dataset == Dataset(
        "cases",
        [
            Case(id="a", prompt="a", graders=["contains"], tags=("all", "x", "y"), repeat=2),
            Case(
                id="b",
                prompt="b",
                graders=["equals"],
                tags=("all", "x"),
                repeat=1,
                limits=Limits(allowed_tools=("read",)),
            ),
        ],
        "cases.toml",
        is_untrusted=True,
    )


def test_all_mistakes_of_a_toml_file_are_told_in_full(write):
    text = (
        'name = ""\nrepeat = "x"\nnmae = 1\n[[case]]\nprompt = 1\n[[case]]\nid = "a"\n[[case]]\nid = "a"\n'
        'prompt = "x"\ngraders = ["contain", "equals", {name = "matches"}]\nlimits = {max_turns = -1}\n'
        "tags = []\noutput = 3\n[[case]]\n[case.limits]\nodd = 1\n"
    )
    with pytest.raises(BadDataset) as caught:
        load_dataset(write(text))
    assert [(each.line, each.message) for each in caught.value.faults] == [
        (1, "name is '': give one line of text"),
        (2, "repeat is 'x': give a whole number, 1 or more, and at most 1000"),
        (3, "'nmae' is not known here: did you mean 'name'? use name, graders, tags, limits, repeat, case"),
        (5, "prompt is 1: give a text of at most 1,000,000 characters"),
        (6, 'this case has no prompt: add prompt = "…"'),
        (9, "the id 'a' is that of line 7 too: rename one"),
        (
            11,
            (
                "there is no grader 'contain': did you mean 'contains'? use contains, equals, matches, schema, model, "
                "command, all_of, any_of, or a function as module:name"
            ),
        ),
        (11, "the grader 'matches' needs pattern: write {name = \"matches\", pattern = …}"),
        (12, "Limits(max_turns=-1): give a whole number above zero, or None for no limit"),
        (14, "output is 3: give a JSON Schema, as a table"),
        (15, 'this case has no prompt: add prompt = "…"'),
        (
            17,
            (
                "Limits(odd=…): there is no option 'odd': its options are max_turns, token_budget, max_cost_usd, "
                "timeout_seconds, max_tool_calls, max_calls_per_reply, max_parallel_tools, tool_timeout_seconds, "
                "allowed_tools, widens"
            ),
        ),
    ]


def test_a_file_that_is_too_large_is_refused(write, monkeypatch):
    line = '{"prompt": "x"}'
    monkeypatch.setattr(reader, "MAX_BYTES", len(line))
    assert len(load_dataset(write(line, "cases.jsonl")).cases) == 1
    with pytest.raises(BadDataset) as caught:
        load_dataset(write(line + "\n", "cases.jsonl"))
    assert str(caught.value) == "cases.jsonl: the file has 16 bytes, and 15 are the most: split it"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"prompt": }', "cases.jsonl:1: this is no JSON: expecting value; write one object a line"),
        ("[]", 'cases.jsonl:1: a line has to be one JSON object, such as {"prompt": "…", "expected": "…"}'),
        ('{"prompt": "x", "deps": -Infinity}', "cases.jsonl:1: -Infinity is no number of JSON: give a finite one"),
        (b'\n{"prompt": "\xff"}', "cases.jsonl:2: this is no UTF-8: save the file as UTF-8"),
        ("[" * 100_000, "cases.jsonl:1: values are nested too deep to be read: make it flatter"),
        ("\n", 'cases.jsonl: there are no cases: add one, as [[case]] in TOML, with prompt = "…"'),
        (
            '{"prompt": "x", "id": "a"}\n\n{"prompt": "y", "id": "a"}',
            "cases.jsonl:3: the id 'a' is that of line 1 too: rename one",
        ),
    ],
)
def test_a_mistake_in_jsonl_is_told_in_full(write, text, told):
    with pytest.raises(BadDataset) as caught:
        load_dataset(write(text, "cases.jsonl"))
    assert str(caught.value) == told


@pytest.mark.parametrize("name", ["cases.NDJSON", "cases.JSONL"])
def test_the_ending_of_a_file_of_lines_may_be_another(write, name):
    assert load_dataset(write('{"prompt": "x"}', name)).name == "cases"


def test_a_file_without_the_right_ending_is_told_what_to_do(write):
    with pytest.raises(BadDataset) as caught:
        load_dataset(write("", "cases.yaml"))
    assert str(caught.value) == "cases.yaml: a dataset is a file whose name ends in .toml or .jsonl: rename it"
