"""models/json_tools/reply.py: what a reply says, in whatever pieces it comes, and what becomes of other replies."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._models.endpoint.json_reply import (
    MAX_UNDECIDED_CHARACTERS,
    JsonReplyParser,
    JsonStringDecoder,
    JsonValueScanner,
)
from perdure.events import TextDelta


def read(*pieces: str, most_calls: int = 8, structured: bool = False):
    """The text and the calls of a reply that comes in these pieces."""
    reply = JsonReplyParser("c", most_calls=most_calls, structured=structured)
    told = [event for piece in pieces for event in reply.feed(piece)] + reply.end()
    text = "".join([event.text for event in told if isinstance(event, TextDelta)])
    calls = [event for event in told if not isinstance(event, TextDelta)]
    assert [event.index for event in calls] == list(range(len(calls)))
    assert len({event.call_id for event in calls}) == len(calls)
    return text, [(event.name, event.arguments) for event in calls]


def cut(text: str, places: list[int]) -> list[str]:
    bounds = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


CALL = ("add", '{"a": 1, "b": [2, "}"]}')


# -- the two forms -----------------------------------------------------------------------------------------------------


def test_a_call_is_told_with_its_arguments_on_one_line():
    assert read('{"tool": "add", "args": {"a": 1, "b": [2, "}"]}}') == ("", [CALL])
    assert read('{\n  "tool": "add",\n  "args": {\n    "a": 1,\n    "b":[2,"}"]\n  }\n}') == ("", [CALL])


def test_a_call_is_told_when_it_is_whole_and_not_before():
    reply = JsonReplyParser("c", most_calls=8, structured=False)
    assert reply.feed('{"tool": "add", "args": {"a": 1') == []
    assert len(reply.feed("}}")) == 1
    assert reply.end() == []


def test_the_answer_is_told_while_it_comes():
    reply = JsonReplyParser("c", most_calls=8, structured=False)
    pieces = ['{"fi', 'nal": "They', " are", ' three."}']
    assert [reply.feed(piece) for piece in pieces] == [
        [],
        [TextDelta("They")],
        [TextDelta(" are")],
        [TextDelta(" three.")],
    ]
    assert reply.end() == []


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ('{"args": {"a": 1, "b": [2, "}"]}, "tool": "add"}', ("", [CALL])),
        ('{"tool": "now"}', ("", [("now", "{}")])),
        ('{"tool": "add", "args": "{\\"a\\": 1}"}', ("", [("add", '{"a": 1}')])),
        ('{"why": "no tool fits", "final": "Hello."}', ("Hello.", [])),
        ('{"final": 12.5}', ("12.5", [])),
        ('{"final": {"a": [1]}, "more": 2}', ('{"a": [1]}', [])),
        ('{"final": "Hello."} and more', ("Hello.", [])),
        ('{"final": "a", "tool": "add"}', ("a", [])),
    ],
)
def test_the_form_may_be_loose(reply, said):
    assert read(reply) == said


def test_several_calls_may_follow_one_another():
    two = '{"tool": "now"}\n{"tool": "add", "args": {"a": 1, "b": [2, "}"]}}'
    assert read(two) == ("", [("now", "{}"), CALL])
    assert read(two, most_calls=1) == ("", [("now", "{}")])


@pytest.mark.parametrize("made_up", ['{"tool": "now", "result": "noon"}', '{"final": "It is noon."}', "It is noon."])
def test_what_a_model_makes_up_after_its_calls_is_not_listened_to(made_up):
    assert read('{"tool": "now"}\n' + made_up) == ("", [("now", "{}")])


def test_where_nothing_may_be_called_a_call_is_text():
    assert read('{"tool": "now"}', most_calls=0) == ('{"tool": "now"}', [])


@pytest.mark.parametrize("whole", ['{"tool": "add", "args": {"a": 1, "b": 2}}', '{"tool": "now"}'])
def test_a_call_that_is_cut_off_anywhere_is_no_call(whole):
    for end in range(len(whole)):
        assert read(whole[:end]) == (whole[:end], [])


def test_an_answer_that_is_cut_off_is_told_as_far_as_it_goes():
    assert read('{"final": "They are thr') == ("They are thr", [])
    assert read('{"final": "a\\ud83') == ("a", [])


def test_a_second_call_that_is_cut_off_is_dropped():
    assert read('{"tool": "now"}{"tool": "now", "ar') == ("", [("now", "{}")])


# -- other forms -------------------------------------------------------------------------------------------------------

OTHER = [
    "Hello, I am a model.",
    "  \n",
    "",
    "`code` first",
    "```python\nprint()\n```",
    "``` not a fence",
    "{an opening brace",
    '{"answer": 42}',
    '```json\n{"answer": 42}\n```\nThat is all.',
    '{"tool": 5, "args": {}}',
    '{"tool": "", "args": {}}',
    "{'tool': 'now'}",
    "{}",
    "[1, 2]",
    "{ " + " " * MAX_UNDECIDED_CHARACTERS + "no JSON",
    " " * MAX_UNDECIDED_CHARACTERS + "late",
]


@pytest.mark.parametrize("reply", OTHER)
def test_whatever_is_not_of_the_form_is_plain_text_as_it_is(reply):
    assert read(reply) == (reply, [])
    assert read(*reply) == (reply, [])


@pytest.mark.parametrize("fence", ["```json\n{}\n```", "```\n{}\n```", "\n```JSON  \r\n  {}```", "\n\n {}"])
def test_fences_and_blanks_around_the_form_are_overlooked(fence):
    assert read(fence.replace("{}", '{"tool": "now"}')) == ("", [("now", "{}")])
    assert read(*fence.replace("{}", '{"final": "Hello."}')) == ("Hello.", [])


def test_a_structured_answer_is_told_as_the_json_that_it_is():
    assert read('{"final": {"n": 1.50, "s": "\\n"}}', structured=True) == ('{"n": 1.50, "s": "\\n"}', [])
    assert read('{"x": 0, "final": "text"}', structured=True) == ('"text"', [])
    assert read('{"final": [1, 2', structured=True) == ("[1, 2", [])


def test_a_structured_answer_without_its_wrapping_is_taken_and_its_fence_is_not():
    assert read('```json\n{"n": 1}\n```', structured=True) == ('{"n": 1}', [])


# -- pieces ------------------------------------------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8") | st.sampled_from('"\\{}[]\n\t/😀\x00é'), max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
spellings = st.sampled_from(
    [
        json.dumps,
        lambda value: json.dumps(value, ensure_ascii=False, indent=2),
        lambda value: json.dumps(value, separators=(",", ":")),
    ]
)
places = st.lists(st.integers(0, 10_000), max_size=12)


@given(texts, spellings, places)
def test_an_answer_says_the_same_in_any_pieces(answer, spelled, where):
    reply = spelled({"final": answer})
    assert read(*cut(reply, where)) == read(*reply) == (answer, [])


@given(st.dictionaries(texts, values, max_size=4), spellings, places)
def test_a_call_says_the_same_in_any_pieces(arguments, spelled, where):
    reply = spelled({"tool": "some_tool", "args": arguments})
    text, [(name, told)] = read(*cut(reply, where))
    assert (text, name, json.loads(told)) == ("", "some_tool", arguments)
    assert told == read(reply)[1][0][1]


@given(values, spellings, places)
def test_a_structured_answer_says_the_same_in_any_pieces(value, spelled, where):
    reply = spelled({"final": value})
    text, calls = read(*cut(reply, where), structured=True)
    assert (json.loads(text), calls) == (value, [])


@given(
    st.lists(
        st.sampled_from([*'{}[]"`\\,: \nadu', "```", "```json\n", '{"', '"tool"', '"final"', '"args"', "\\ud83d"])
    ),
    places,
    st.booleans(),
)
def test_anything_at_all_says_the_same_in_any_pieces(parts, where, structured):
    reply = "".join(parts)
    assert read(*cut(reply, where), structured=structured) == read(reply, structured=structured)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (r"\u00e9\u00E9", "éé"),
        (r"\ud83d\ude00", "😀"),
        (r"\uD83D\uDE00\uD83D\uDE00", "😀😀"),
        (r"\ud83d", "\N{REPLACEMENT CHARACTER}"),
        (r"\ude00", "\N{REPLACEMENT CHARACTER}"),
        (r"\ud83dA", "\N{REPLACEMENT CHARACTER}A"),
        (r"\ud83d\n", "\N{REPLACEMENT CHARACTER}\n"),
        (r"\ud83d\u0041", "\N{REPLACEMENT CHARACTER}A"),
        (r"\ud83d\ud83d\ude00", "\N{REPLACEMENT CHARACTER}😀"),
        (r"\b\f\n\r\t\/\\\"", '\b\f\n\r\t/\\"'),
        (r"C:\windows \u12 \x", "C:\\windows \\u12 \\x"),
        ("line\nbreak", "line\nbreak"),
    ],
)
def test_escapes_are_understood_wherever_they_are_torn(written, said):
    whole = written + '" rest'
    for place in range(len(whole) + 1):
        string = JsonStringDecoder()
        begun, rest = string.feed(whole[:place])
        if rest is None:
            more, rest = string.feed(whole[place:])
            begun += more
        else:
            rest += whole[place:]
        assert (begun, rest) == (said, " rest")


@given(values, st.sampled_from([",", "}", "]", "\n", " "]), places)
def test_the_end_of_a_value_is_found_in_any_pieces(value, following, where):
    written = json.dumps(value)
    span, seen = JsonValueScanner(), 0
    for piece in cut(written + following + '"{', where):
        end = span.feed(piece)
        if end is not None:
            assert seen + end == len(written)
            return
        seen += len(piece)
    pytest.fail("no end was found")
