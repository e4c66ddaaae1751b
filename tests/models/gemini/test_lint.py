"""What stands around a conversation: what the provider is known to refuse."""

from typing import Any

import pytest

from perdure._models.wires.gemini import WIRE
from perdure.models import Profile

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


def declared(*names: str, **more: Any) -> dict[str, Any]:
    return {"tools": [{"functionDeclarations": [{"name": name, **more} for name in names]}]}


def calling_config(**config: Any) -> dict[str, Any]:
    return {"toolConfig": {"functionCallingConfig": config}}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            {"systemInstruction": {"parts": [{"text": "x"}, {"inlineData": {}}]}},
            "systemInstruction must have text parts only, not {'inlineData': {}}",
        ),
        ({"systemInstruction": {}}, "systemInstruction must have text parts only, not None"),
        (
            {"systemInstruction": {"parts": [{"text": "x"}]}, "cachedContent": "c"},
            "cachedContent has its own instructions and tools, so the request must have none",
        ),
        (
            {"cachedContent": "c", **declared("a")},
            "cachedContent has its own instructions and tools, so the request must have none",
        ),
        (
            declared("a b"),
            "a function cannot be named 'a b': letters, digits and _.:- only, at most 64, and no digit first",
        ),
        (declared("a", "b", "a"), "the function 'a' is declared twice"),
        (
            declared("a", parameters={"type": "OBJECT"}),
            "'a': the top has no properties",
        ),
        (calling_config(mode="MUST"), "there is no mode 'MUST' of calling functions"),
        (
            {**declared("a"), **calling_config(allowedFunctionNames=["a"])},
            "allowedFunctionNames goes with the mode ANY, not None",
        ),
        (
            {**declared("a"), **calling_config(mode="ANY", allowedFunctionNames=["a", "b"])},
            "the function 'b' is allowed but not declared",
        ),
        ({"generationConfig": {"stopSequences": list("abcdef")}}, "there are 6 stopSequences; 5 are allowed"),
        (
            {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0, "thinkingLevel": "low"}}},
            "thinkingBudget and thinkingLevel exclude each other; send one",
        ),
        (
            {"generationConfig": {"responseSchema": {}, "responseJsonSchema": {}}},
            "responseSchema and responseJsonSchema exclude each other; send one",
        ),
        (
            {"generationConfig": {"responseMimeType": "application/json"}, **declared("a")},
            "'gemini-2.5-flash' does not accept responseMimeType together with functions",
        ),
        ({"generationConfig": {"seed": 2**31}}, f"the seed {2**31} does not fit 32 bits"),
        ({"generationConfig": {"seed": -(2**31) - 1}}, f"the seed {-(2**31) - 1} does not fit 32 bits"),
    ],
)
def test_a_head_that_is_refused_is_told_in_full(body: Any, told: str) -> None:
    assert faults(HELLO, **body) == [told]


@pytest.mark.parametrize(
    "body",
    [
        {"generationConfig": {"seed": 2**31 - 1, "stopSequences": list("abcde")}},
        {"generationConfig": {"seed": -(2**31), "thinkingConfig": {"thinkingBudget": 0}}},
        {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}, "responseSchema": {}}},
        {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": {}}},
        {"generationConfig": {"responseMimeType": "application/json"}, "tools": [{"googleSearch": {}}]},
        declared("a", "b"),
        declared("a", parameters={"type": 6, "properties": {"x": {"type": 1}, "y": {"type": "NUMBER"}}}),
        declared(
            "a",
            parameters={"type": "OBJECT", "properties": {"x": {"type": 1, "default": "b"}}, "propertyOrdering": ["x"]},
        ),
        *[{**declared("a"), **calling_config(mode=mode)} for mode in ("AUTO", "ANY", "NONE", "VALIDATED")],
        *[{**declared("a"), **calling_config(mode=mode, allowedFunctionNames=["a"])} for mode in ("ANY", "VALIDATED")],
        {"system_instruction": {"parts": [{"text": "x"}]}, "generation_config": {"stop_sequences": ["a"]}},
    ],
)
def test_a_head_that_is_taken_raises_no_complaint(body: Any) -> None:
    assert faults(HELLO, **body) == []


def test_a_newer_model_takes_functions_and_a_schema() -> None:
    new = Profile(provider="google", model="gemini-3-flash")
    assert faults(HELLO, profile=new, generationConfig={"responseMimeType": "application/json"}, **declared("a")) == []
