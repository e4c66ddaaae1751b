"""What stands around a conversation: what the provider is known to refuse."""

from typing import Any

import pytest

from perdure.models.gemini import WIRE
from perdure.models.profile import Profile

OLD = Profile(provider="google", model="gemini-2.5-flash")
HELLO = {"role": "user", "parts": [{"text": "Hi"}]}
STRANGE = {"type": "OBJECT", "properties": {"x": {"type": 1, "const": "a"}, "default": {"anyOf": [{"type": 3}]}}}


def faults(*contents: Any, profile: Profile = OLD, **more: Any) -> list[str]:
    return list(WIRE.lint({"contents": list(contents), **more}, profile))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"systemInstruction": {"parts": [{"inlineData": {}}]}}, "text parts only"),
        ({"systemInstruction": {"parts": [{"text": "x"}]}, "cachedContent": "c"}, "cachedContent"),
        ({"tools": [{"functionDeclarations": [{"name": "a b"}]}]}, "cannot be named 'a b'"),
        ({"tools": [{"functionDeclarations": [{"name": "a"}, {"name": "a"}]}]}, "declared twice"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "MUST"}}}, "no mode 'MUST'"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["a"]}}}, "not declared"),
        ({"generationConfig": {"stopSequences": list("abcdef")}}, "6 stopSequences"),
        ({"generationConfig": {"thinkingConfig": {"thinkingBudget": 0, "thinkingLevel": "low"}}}, "exclude each other"),
        ({"generationConfig": {"responseSchema": {}, "responseJsonSchema": {}}}, "exclude each other"),
        ({"generationConfig": {"seed": 2**31}}, "32 bits"),
        (
            {
                "generationConfig": {"responseMimeType": "application/json"},
                "tools": [{"function_declarations": [{"name": "a"}]}],
            },
            "together with functions",
        ),
        (
            {"tools": [{"functionDeclarations": [{"name": "a", "parameters": STRANGE}]}]},
            "'a': /x: the keyword 'const' is not supported",
        ),
    ],
)
def test_heads_that_are_refused(body, words):
    [fault] = faults(HELLO, **body)
    assert words in fault


def test_names_are_allowed_where_a_function_must_be_called():
    config = {"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": ["a"]}}
    [fault] = faults(HELLO, tools=[{"functionDeclarations": [{"name": "a"}]}], toolConfig=config)
    assert "goes with the mode ANY" in fault


def test_what_is_there_but_null_is_not_there():
    nothing = {"systemInstruction": None, "tools": None, "toolConfig": None, "generationConfig": None}
    assert list(WIRE.lint({"contents": [HELLO], "cachedContent": "c", **nothing}, OLD)) == []
