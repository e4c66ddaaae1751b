"""A tool and its arguments are guessed from words, by rules that always give the same answer."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._models.local.tool_choice import choose_tool, guess_arguments, restrict_tool_values
from perdure.models import ToolSpec
from perdure.tools import basic_tools

TEXT, WHOLE, NUMBER, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}


def spec(name="tool", description="", required=None, **properties):
    needed = list(properties) if required is None else required
    return ToolSpec(name, description, {"type": "object", "properties": properties, "required": needed})


WEATHER = spec("get_weather", "Tells the forecast.", city=TEXT)
SEARCH = spec("webSearch", "Searches pages.", query=TEXT)
READ = spec("read", "Reads a file from disk.", path={"type": "string", "description": "Which document"})


# -- which tool --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "chosen"),
    [
        ("What's the weather?", "get_weather"),
        ("search for it", "webSearch"),
        ("Searching the web", "webSearch"),
        ("the forecast for a city", "get_weather"),
        ("which document is this file", "read"),
        ("Get me the tool to use", None),
        ("a page", None),
        ("", None),
    ],
)
def test_the_tool_that_shares_most_words_is_chosen(sentence, chosen):
    tool = choose_tool(sentence, [WEATHER, SEARCH, READ])
    assert (tool.name if tool else None) == chosen


def test_of_equals_the_first_is_chosen():
    first, second = spec("weather_a"), spec("weather_b")
    assert choose_tool("weather", [first, second]) is first


def test_a_tool_that_needs_nothing_is_ahead_by_no_more_than_one_word():
    named: ToolSpec = spec("weather", city=TEXT)
    unneeding: ToolSpec = spec("outlook", "Forecast of rain.")
    assert choose_tool("weather forecast rain", [named, unneeding]) is named  # three points each
    assert choose_tool("weather forecast rain", [unneeding, named]) is unneeding


def test_when_one_must_be_chosen_the_best_is_even_if_it_is_not_good():
    assert choose_tool("nothing to do with it", [WEATHER, SEARCH], required=True) is WEATHER
    assert choose_tool("anything", [], required=True) is None


BASICS = [each.spec for each in basic_tools()]


@pytest.mark.parametrize(
    ("sentence", "chosen"),
    [
        ("What is 17 * 23?", "calculate"),
        ("2+2", "calculate"),
        ("how much is 12.5% of 80", None),
        ("1/0", "calculate"),
        ("Was ist 12 * 12?", "calculate"),
        ("What time is it?", "now"),
        ("What day is it?", "now"),
        ("what's the date today?", "now"),
        ("time in Tokyo", "now"),
        ("What time is it in New York right now?", "now"),
        ("summarize README.md", "read_text"),
        ("fix the bug in app.py", "read_text"),
        ("Write a file hello.txt that says hello", "write_text"),
        ("hello", None),
        ("What is the capital of France?", None),
        ("Who are you?", None),
        ("How was your day?", None),
        ("Tell me about the time of the dinosaurs and why they died out", None),
        ("I was born on 1990-05-12, how old am I?", None),
        ("What a beautiful day", None),
    ],
)
def test_the_basic_tools_are_chosen_for_what_they_do_and_for_nothing_else(sentence, chosen):
    tool = choose_tool(sentence, BASICS)
    assert (tool.name if tool else None) == chosen


@pytest.mark.parametrize(
    ("name", "sentence", "properties"),
    [
        ("calculate", "What is 17 * 23, or 2 + 2?", {"expression": ["17 * 23", "2 + 2"]}),
        ("read_text", "Compare a.txt and b.txt", {"path": ["a.txt", "b.txt"]}),
        ("now", "What time is it in New York?", {"zone": ["New York"]}),
        ("now", "What time is it?", {}),
        ("now", "What time is it in the morning?", {}),
        ("write_text", "Write a poem to 'sea'", {"path": ["sea"], "text": None}),
    ],
)
def test_a_tool_is_narrowed_to_what_the_sentence_has(name, sentence, properties):
    (tool,) = [each for each in BASICS if each.name == name]
    narrowed = restrict_tool_values(tool, sentence)
    assert narrowed is not None
    assert {key: schema.get("enum") for key, schema in narrowed.parameters["properties"].items()} == properties
    assert narrowed.parameters["required"] == list(properties)


@pytest.mark.parametrize(
    ("name", "sentence"), [("write_text", "Write a haiku about the sea"), ("read_text", "Read it"), ("calculate", "Go")]
)
def test_a_tool_that_needs_what_the_sentence_lacks_cannot_be_narrowed(name, sentence):
    (tool,) = [each for each in BASICS if each.name == name]
    assert restrict_tool_values(tool, sentence) is None


# -- which arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "properties", "arguments"),
    [
        ("wetter for 3 days in Bergen", {"city": TEXT, "days": WHOLE}, {"city": "Bergen", "days": 3}),
        ("days: 35, or 3", {"days": WHOLE}, {"days": 35}),
        ("in Fahrenheit", {"unit": {"enum": ["celsius", "fahrenheit"]}}, {"unit": "fahrenheit"}),
        ("2 and 3", {"a": WHOLE, "b": WHOLE}, {"a": 2, "b": 3}),
        ("2.5 or 7", {"a": WHOLE, "b": NUMBER}, {"a": 7, "b": 2.5}),
        ("-4 degrees", {"value": NUMBER}, {"value": -4}),
        ("say 'one' and `two`", {"a": TEXT, "b": TEXT}, {"a": "one", "b": "two"}),
        ("from Oslo to New York", {"start": TEXT, "end": TEXT}, {"start": "Oslo", "end": "New York"}),
        ("Is Oslo big?", {"city": TEXT}, {"city": "Oslo"}),
        ("how big is it in oslo", {"city": TEXT}, {"city": "oslo"}),
        ("Read src/main.py.", {"path": TEXT}, {"path": "src/main.py"}),
        ("Show /etc/hosts", {"file": TEXT}, {"file": "/etc/hosts"}),
        ("Open README.md", {"file_name": TEXT}, {"file_name": "README.md"}),
        ("Get https://example.org/a?b=1.", {"url": TEXT}, {"url": "https://example.org/a?b=1"}),
        ("What is 2 + 2*3?", {"expression": TEXT}, {"expression": "2 + 2*3"}),
        ("the capital of Norway", {"query": TEXT}, {"query": "the capital of Norway"}),
        ("whatever", {"unit": {"enum": ["c", "f"]}}, {"unit": "c"}),
        ("whatever", {"force": FLAG}, {"force": False}),
        ("in Oslo", {"city": {"anyOf": [{"type": "null"}, TEXT]}}, {"city": "Oslo"}),
        ("in Oslo", {"city": {"type": ["null", "string"]}}, {"city": "Oslo"}),
        ("in Oslo", {"city": True}, {"city": "Oslo"}),
        ("say Kelvin", {"query": TEXT, "unit": {"enum": ["c", "kelvin"]}}, {"query": "say Kelvin", "unit": "kelvin"}),
        ("hello", {"text": TEXT, "topic": TEXT}, {"text": "hello", "topic": "hello"}),
        ("hello", {"days": {"type": "integer", "default": 3}}, {"days": 3}),
        ("hello", {"tags": {"type": "array", "items": TEXT, "default": []}}, {"tags": []}),
    ],
)
def test_arguments_are_found_in_the_sentence(sentence, properties, arguments):
    assert guess_arguments(spec(**properties), sentence) == (arguments, [])


@pytest.mark.parametrize(
    ("sentence", "properties", "missing"),
    [
        ("hello", {"city": TEXT}, ["city"]),
        ("Write a haiku about the sea", {"path": TEXT}, ["path"]),
        ("What is the capital of France?", {"expression": TEXT}, ["expression"]),
        ("hello", {"a": WHOLE, "b": NUMBER}, ["a", "b"]),
        ("only 2", {"a": WHOLE, "b": WHOLE}, ["b"]),
        ("in Oslo", {"place": {"type": "object"}}, ["place"]),
        ("in Oslo", {"nothing": {"type": "null"}}, ["nothing"]),
        ("in Oslo", {"nothing": {"type": ["null"]}}, ["nothing"]),
        ("hello", {"tags": {"type": "array", "items": TEXT}}, ["tags"]),
    ],
)
def test_what_is_not_in_the_sentence_is_missing(sentence, properties, missing):
    assert guess_arguments(spec(**properties), sentence)[1] == missing


def test_a_parameter_that_may_be_left_out_is():
    tool = spec("weather", required=["city"], city=TEXT, days=WHOLE, unit={"enum": ["celsius", "kelvin"]})
    assert guess_arguments(tool, "In Oslo, 3 days, kelvin") == ({"city": "Oslo"}, [])


def test_the_tools_own_words_are_no_arguments():
    assert guess_arguments(spec("weather", city=TEXT), "Weather for the weather") == ({}, ["city"])


def test_a_tool_without_parameters_needs_none():
    assert guess_arguments(ToolSpec("now", "", {}), "what time") == ({}, [])


@pytest.mark.parametrize(
    ("name", "sentence", "is_chosen"),
    [
        ("url", "get https://example.org/a now", True),
        ("url", "get me a page", False),
        ("city", "get https://example.org/a now", False),
        ("expression", "2 + 3 of them", True),
        ("city", "2 + 3 of them", False),
        ("path", "what is in notes.txt", True),
        ("city", "what is in notes.txt", False),
    ],
)
def test_a_value_that_a_tool_needs_speaks_for_the_tool(name, sentence, is_chosen):
    assert (choose_tool(sentence, [spec("x", **{name: TEXT})]) is not None) is is_chosen


@given(st.text(max_size=300))
def test_any_sentence_gives_arguments_that_can_be_sent(sentence):
    tool = spec(
        city=TEXT,
        path=TEXT,
        url=TEXT,
        expression=TEXT,
        count=WHOLE,
        size=NUMBER,
    )
    arguments, missing = guess_arguments(tool, sentence)
    assert arguments.keys().isdisjoint(missing)
    assert msgspec.json.decode(msgspec.json.encode(arguments)) == arguments


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "a", "string", "null", "city", "query"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"])
SCHEMAS: st.SearchStrategy[object] = st.deferred(
    lambda: st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, max_size=2) | JSON,
            "enum": st.lists(JSON, max_size=3) | JSON,
            "default": JSON,
            "anyOf": st.lists(SCHEMAS, max_size=2) | JSON,
            "oneOf": st.lists(SCHEMAS, max_size=2) | JSON,
            "description": JSON,
        },
    )
)
NAMED = ["query", "text", "unit", "path", "url", "expression", "city", "x"]
NAMES = st.sampled_from(NAMED)


@given(
    st.dictionaries(NAMES, SCHEMAS, min_size=2, max_size=5) | JSON,
    st.just(NAMED) | JSON,
    st.sampled_from(["", "search 'a' for 3 whales in Oslo", "read a.txt, https://a.org and 2 + 2"]),
)
def test_any_schema_gives_arguments_that_can_be_sent(properties, required, sentence):
    tool = ToolSpec("search", "", {"type": "object", "properties": properties, "required": required})
    assert choose_tool(sentence, [tool], required=True) is tool
    arguments, missing = guess_arguments(tool, sentence)
    assert arguments.keys().isdisjoint(missing)
    assert msgspec.json.decode(msgspec.json.encode(arguments)) == arguments
    restrict_tool_values(tool, sentence)


@pytest.mark.parametrize("unit", ["(", "1 ", "a.", "/a", "'", "A ", "-1", "\u2019"])
def test_a_very_long_sentence_is_read_quickly(unit):
    guess_arguments(spec(city=TEXT, path=TEXT, expression=TEXT, count=WHOLE), unit * 100_000)


@pytest.mark.parametrize(
    ("sentence", "properties", "arguments"),
    [
        ("from Oslo and Bergen", {"a": TEXT, "b": TEXT}, {"a": "Oslo", "b": "Bergen"}),
        ("go to New York. Rome waits", {"a": TEXT, "b": TEXT}, {"a": "New York", "b": "Rome"}),
        ("add 2 and 2", {"a": WHOLE, "b": WHOLE}, {"a": 2, "b": 2}),
        ("(see https://a.org/x).", {"link": TEXT}, {"link": "https://a.org/x"}),
        ("see https://a.org/x.txt and b.txt", {"path": TEXT}, {"path": "b.txt"}),
        ("read ~/a/b and ../c/d", {"path": TEXT, "folder": TEXT}, {"path": "~/a/b", "folder": "../c/d"}),
        ("read 'my file'", {"path": TEXT}, {"path": "my file"}),
        ("write 'hello' into it", {"text": TEXT}, {"text": "hello"}),
    ],
)
def test_each_parameter_gets_the_next_value_that_fits_it(sentence, properties, arguments):
    assert guess_arguments(spec(**properties), sentence) == (arguments, [])


@pytest.mark.parametrize(
    ("sentence", "formulas"),
    [
        ("What is (17 + 4) * 2?", ["(17 + 4) * 2"]),
        ("10-3", ["10-3"]),
        ("7/2?", ["7/2"]),
        ("2 + 2, or 3 * 4", ["2 + 2", "3 * 4"]),
        ("10 - 3 apples", ["10 - 3"]),
        ("the range 10-3", []),
        ("I was born in 1990-05-12", []),
        ("open 24/7", []),
        ("version 1.2.3, at 10:30", []),
        ("10%", []),
        ("I have 3 cats and 4 dogs", []),
    ],
)
def test_numbers_are_a_formula_where_they_are_to_be_calculated(sentence, formulas):
    tool = restrict_tool_values(spec(expression=TEXT), sentence)
    assert (tool.parameters["properties"]["expression"]["enum"] if tool else []) == formulas


@pytest.mark.parametrize(
    ("sentence", "chosen"),
    [
        ("searching", "search"),
        ("Searches", "search"),
        ("sear", None),
        ("the planet", None),
        ("plane", "plane"),
        ("```\nsearch\n```\nhello", None),
        ("x" * 1999 + " search", None),
        ("x " * 990 + "search", "search"),
    ],
)
def test_a_tool_is_known_by_the_first_six_letters_of_a_word(sentence, chosen):
    tool = choose_tool(sentence, [spec("search"), spec("plane")])
    assert (tool.name if tool else None) == chosen


def test_what_is_written_freely_has_a_limit_of_length_unless_the_tool_sets_one():
    tool = spec(
        "note", "Notes.", message=TEXT, short={"type": "string", "maxLength": 9}, count=WHOLE, city=TEXT, path=TEXT
    )
    narrowed = restrict_tool_values(tool, "note it in a.txt")
    assert narrowed == ToolSpec(
        "note",
        "Notes.",
        {
            "type": "object",
            "properties": {
                "message": {"maxLength": 400, "type": "string"},
                "short": {"type": "string", "maxLength": 9},
                "count": WHOLE,
                "city": {"maxLength": 400, "type": "string"},
                "path": {"type": "string", "enum": ["a.txt"]},
            },
            "required": ["message", "short", "count", "city", "path"],
        },
    )


@pytest.mark.parametrize(
    ("sentence", "properties"),
    [
        ("in Oslo and in Rome", {"zone": ["Oslo", "Rome"]}),
        ("in the morning", {}),
        ("verbose, 3 days, from a.txt", {}),
    ],
)
def test_of_what_may_be_left_out_a_place_is_offered_where_the_sentence_has_one(sentence, properties):
    tool = spec("now", required=[], zone=TEXT, days=WHOLE, verbose=FLAG, path=TEXT)
    narrowed = restrict_tool_values(tool, sentence)
    assert narrowed is not None
    assert {name: each["enum"] for name, each in narrowed.parameters["properties"].items()} == properties
