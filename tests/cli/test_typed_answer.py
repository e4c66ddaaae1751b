"""What typed words mean."""

import pytest

from perdure import Invalid
from perdure._cli.terminal.questions import parse_typed_answer

LIST = {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("anything ", None, "anything "),
        ("5", {"type": "string"}, "5"),
        ("5", {"type": "integer"}, 5),
        (" 5 ", {"type": "integer"}, 5),
        ("yes", {"type": "boolean"}, True),
        ("N", {"type": "boolean"}, False),
        ("true", {"type": "boolean"}, True),
        (" a ", {"enum": ["a", "b"]}, "a"),
        ("a, b", LIST, ["a", "b"]),
        ("a", LIST, ["a"]),
        ("", LIST, []),
        ('["a, b"]', LIST, ["a, b"]),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("null", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ("yes", {"anyOf": [{"type": "string"}, {"type": "boolean"}]}, "yes"),
    ],
)
def test_the_schema_decides_what_words_mean(text, schema, value):
    assert parse_typed_answer(text, schema) == value


@pytest.mark.parametrize(
    ("text", "schema", "told"),
    [
        ("five", {"type": "integer"}, "expected an integer, got 'five'"),
        ("c", {"type": "string", "enum": ["a", "b"]}, "expected one of 'a', 'b', got 'c'"),
        ('{"a": "x"}', {"type": "object", "properties": {"a": {"type": "integer"}}}, "a: expected an integer"),
        ("[" * 3000, {"type": "integer"}, "expected an integer"),
    ],
)
def test_words_that_mean_nothing_say_why(text, schema, told):
    with pytest.raises(Invalid) as refused:
        parse_typed_answer(text, schema)
    assert told in str(refused.value)
