"""What a provider of the Responses wire would refuse."""

from typing import Any

import pytest

from perdure._models.endpoint.memo import ProviderRuleError
from perdure._models.wires.openai_responses import WIRE
from perdure._models.wires.openai_responses.dialect import DIALECTS
from perdure._models.wires.openai_responses.lint import ResponsesMessageRules
from perdure.models import Profile
from tests.models.openai_responses.speaking import PROFILE

HI = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "1"}
THOUGHT = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


def problems(*items: Any, profile: Profile = PROFILE, **fields: Any) -> str:
    body = {"model": "gpt-9", "input": [*items], **fields}
    return "; ".join(WIRE.lint(body, profile))


@pytest.mark.parametrize(
    "items",
    [
        [HI],
        [HI, THOUGHT, CALL, RESULT],
        [HI, THOUGHT, SAID, CALL, RESULT],
        [HI, THOUGHT, THOUGHT, CALL, {**CALL, "call_id": "c2"}, RESULT, {**RESULT, "call_id": "c2"}, SAID],
        [HI, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, SAID, HI],
        [HI, CALL, {**RESULT, "output": [{"type": "input_text", "text": "1"}]}],
        *[[HI, {**CALL, "call_id": each}, {**RESULT, "call_id": each}] for each in ("c", "x" * 64)],
        [HI, {**CALL, "arguments": ""}, {**RESULT, "output": ""}, HI],
        [{"role": "developer", "content": [{"type": each} for each in ("input_text", "input_image", "input_file")]}],
        [HI, {**SAID, "content": [{"type": "refusal", "refusal": "no"}]}, {"role": "system", "content": ""}],
        [HI, CALL, SAID, RESULT],
    ],
)
def test_a_sound_conversation_breaks_no_rule(items: list[Any]) -> None:
    assert problems(*items) == ""


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ([], "the conversation is empty"),
        ([HI, CALL], "have no result"),
        ([HI, RESULT], "answers none of the open calls"),
        ([HI, CALL, RESULT, RESULT], "answers none of the open calls"),
        ([HI, CALL, {**RESULT, "type": "custom_tool_call_output"}], "answers none of the open calls"),
        ([HI, CALL, HI, RESULT], "is before the results"),
        ([HI, CALL, CALL, RESULT, RESULT], "have the same id"),
        ([HI, THOUGHT], "ends with reasoning"),
        ([HI, THOUGHT, HI], "reasoning is followed by a message of the user"),
        ([HI, CALL, THOUGHT, RESULT], "follows reasoning"),
        ([HI, {"type": "reasoning"}, SAID], "no list of summaries"),
        ([HI, {**CALL, "call_id": ""}], "text of 1 to 64 characters"),
        ([HI, {**CALL, "call_id": "x" * 65}], "text of 1 to 64 characters"),
        ([HI, {**CALL, "name": ""}], "names no tool"),
        ([HI, {**CALL, "arguments": {}}], "must be text"),
        ([HI, CALL, {**RESULT, "output": None}], "must be text or a list"),
        ([{"role": "robot", "content": "hi"}], "the role 'robot'"),
        ([{"role": "user", "content": []}], "has no content"),
        ([{"role": "user", "content": [{"type": "output_text", "text": "x"}]}], "has an item 'output_text'"),
        ([HI, {"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}], "has an item 'input_text'"),
        ([{"id": "x"}], "has no type"),
        ([HI, {**SAID, "id": "m"}, {**SAID, "id": "m"}], "the id 'm' is used more than once"),
        ([HI, CALL, RESULT, CALL, RESULT], "the call_id 'c1' is used more than once"),
    ],
)
def test_a_conversation_that_would_be_refused_is_told(items: list[Any], told: str) -> None:
    assert told in problems(*items)


def test_what_was_kept_by_nobody_cannot_be_pointed_at() -> None:
    bare = {"type": "reasoning", "id": "rs_1", "summary": []}
    reference = {"type": "item_reference", "id": "msg_1"}
    assert "'rs_1' is empty" in problems(HI, bare, SAID, store=False)
    assert "'msg_1' is empty" in problems(HI, reference, SAID, store=False)
    assert problems(HI, bare, SAID, store=True) == ""


def test_results_of_calls_that_the_provider_keeps_are_taken() -> None:
    assert problems(HI, RESULT, previous_response_id="resp_1") == ""


def test_input_may_be_text() -> None:
    assert WIRE.lint({"model": "m", "input": "hi"}, PROFILE) == []
    assert WIRE.lint({"model": "m", "input": ""}, PROFILE) != []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"model": ""}, "there is no model"),
        ({"max_output_tokens": 5}, "at least 16"),
        ({"prompt_cache_key": "x" * 65}, "longer than 64"),
        ({"tools": [{**TOOL, "name": "no spaces"}]}, "'no spaces'"),
        ({"tools": [TOOL, TOOL]}, "the tool 'f' is used more than once"),
        ({"tools": [{**TOOL, "strict": True}]}, "the tool 'f' has a schema that is refused"),
        ({"tools": [{**TOOL, "parameters": {"type": "string"}}]}, "the tool 'f' has a schema that is refused"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "no such tool"),
        ({"tool_choice": "required"}, "there are no tools"),
        ({"text": {"format": {"type": "json_schema", "name": "", "schema": TOOL["parameters"]}}}, "name of the output"),
        ({"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "array"}}}}, "the output has"),
    ],
)
def test_a_body_that_would_be_refused_is_told(fields: dict[str, Any], told: str) -> None:
    assert told in problems(HI, **fields)


@pytest.mark.parametrize(
    ("dialect", "fields", "told"),
    [
        ("codex", {}, "only streams"),
        ("codex", {"stream": True, "store": False}, "requires instructions"),
        (
            "codex",
            {"stream": True, "store": False, "instructions": "", "temperature": 1},
            "temperature is not accepted",
        ),
        ("codex", {"stream": True, "store": False, "instructions": "", "max_output_tokens": 99}, "is not accepted"),
        ("silent", {"reasoning": {"effort": "low"}}, "reasoning is not accepted"),
        ("open", {"include": ["reasoning.encrypted_content"]}, "does not return"),
    ],
)
def test_each_dialect_has_its_own_rules(dialect: str, fields: dict[str, Any], told: str) -> None:
    profile = Profile(provider="p", model="m", dialect=dialect)
    assert told in problems(HI, profile=profile, **fields)


def test_rules_are_steps_that_leave_earlier_states_alone() -> None:
    rules = ResponsesMessageRules(DIALECTS[""])
    before = rules.step(rules.begin(), HI)
    rules.step(before, CALL)
    rules.end(before)
    with pytest.raises(ProviderRuleError):
        rules.end(rules.begin())


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ([], "the conversation is empty: add a message"),
        ([HI, {"type": "reasoning"}, SAID], "reasoning has no list of summaries: {'type': 'reasoning'}"),
        ([{"id": "x"}], "the item {'id': 'x'} has no type"),
        ([HI, THOUGHT], "the conversation ends with reasoning, without the item that it belongs to"),
        ([HI, CALL, {**CALL, "call_id": "c2"}], "the calls ['c1', 'c2'] have no result"),
        ([HI, {**CALL, "name": None}], "the call 'c1' names no tool"),
        ([HI, {**CALL, "name": ""}], "the call 'c1' names no tool"),
        ([HI, {**CALL, "arguments": None}], "the arguments of the call 'c1' must be text, and not None"),
        (
            [HI, {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": 7}],
            "the input of the call 'c1' must be text, and not 7",
        ),
        (
            [HI, CALL, THOUGHT, RESULT],
            "the result of 'c1' follows reasoning, which belongs to another item",
        ),
        (
            [HI, CALL, {**RESULT, "call_id": "c2"}],
            "the result of 'c2' answers none of the open calls, ['c1']",
        ),
        (
            [HI, CALL, {**RESULT, "output": []}],
            "the result of 'c1' must be text or a list of content items, and not []",
        ),
        ([HI, {**CALL, "call_id": 7}], "the id of a call is text of 1 to 64 characters, and not 7"),
        (
            [{"role": "robot", "content": "hi"}],
            "the role 'robot' is none of ['assistant', 'developer', 'system', 'user']",
        ),
        (
            [HI, THOUGHT, {"role": "system", "content": "x"}],
            "reasoning is followed by a message of the system, and not by what it belongs to",
        ),
        ([HI, CALL, HI], "a message of the user is before the results of ['c1']"),
        ([{"role": "user"}], "a message of the user has no content: None"),
        (
            [{"role": "user", "content": [{"type": "refusal"}]}],
            "a message of the user has an item 'refusal'; allowed are input_audio, input_file, input_image, input_text",
        ),
        (
            [HI, {"role": "assistant", "content": [{"type": "input_text"}]}],
            "a message of the assistant has an item 'input_text'; allowed are output_text, refusal",
        ),
    ],
)
def test_a_broken_rule_is_told_in_full(items: list[Any], told: str) -> None:
    assert problems(*items) == f"the conversation would be refused: {told}"


def test_only_the_beginning_of_a_long_item_is_shown() -> None:
    assert len(problems({"id": "x" * 1000})) < 200


def test_two_open_calls_of_one_id_break_two_rules() -> None:
    assert problems(HI, CALL, CALL).split("; ") == [
        "the conversation would be refused: two calls without results have the same id, 'c1'",
        "the call_id 'c1' is used more than once",
    ]


def test_all_that_is_wrong_with_a_body_is_listed_in_order() -> None:
    found = WIRE.lint(
        {
            "model": "",
            "input": [
                HI,
                {**SAID, "id": "m"},
                {**SAID, "id": "m"},
                {"type": "reasoning", "id": "r", "summary": []},
                SAID,
            ],
            "store": False,
            "tools": [{**TOOL, "name": 7}, {"type": "custom", "name": "g"}, {"type": "custom", "name": "g"}],
            "tool_choice": {"type": "function", "name": "f"},
            "text": {"format": {"type": "json_schema", "name": "n" * 65, "schema": TOOL["parameters"]}},
            "max_output_tokens": 15,
            "prompt_cache_key": "x" * 65,
        },
        PROFILE,
    )
    assert found == [
        "the id 'm' is used more than once",
        "the reasoning 'r' is empty, and a provider that stores nothing cannot look it up",
        "the name of a tool, 7, is not 1 to 64 letters, digits, '_' or '-'",
        "the tool 'g' is used more than once",
        "tool_choice names 'f', and there is no such tool",
        f"the name of the output, {'n' * 65!r}, is not 1 to 64 letters, digits, '_' or '-'",
        "there is no model: ''",
        "max_output_tokens is 15, and must be at least 16",
        "prompt_cache_key is longer than 64 characters",
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"max_output_tokens": 16, "prompt_cache_key": "x" * 64, "temperature": 1, "top_p": 1},
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}},
        {"tools": [{**TOOL, "name": "n" * 64}], "tool_choice": "required"},
        {"tools": [{"type": "web_search"}], "tool_choice": "required"},
        {"tools": [{"type": "custom", "name": "g"}], "tool_choice": {"type": "function", "name": "g"}},
        {"tools": [{**TOOL, "parameters": {**TOOL["parameters"], "$schema": "x"}}]},  # type: ignore[dict-item]
        {"text": {"format": {"type": "json_schema", "name": "n" * 64, "schema": TOOL["parameters"]}}},
        {"text": {"format": {"type": "json_object"}}},
        {"reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"]},
    ],
)
def test_a_sound_body_breaks_no_rule(fields: dict[str, Any]) -> None:
    assert problems(HI, **fields) == ""


@pytest.mark.parametrize(
    ("dialect", "fields", "told"),
    [
        ("codex", {"stream": True, "store": False, "instructions": ""}, ""),
        (
            "codex",
            {"stream": True, "store": True, "instructions": ""},
            "this endpoint only streams, and stores nothing: stream must be true, and store false",
        ),
        (
            "codex",
            {"stream": False, "store": False, "top_p": 0.5},
            (
                "top_p is not accepted here, and is 0.5; this endpoint only streams, and stores nothing: "
                "stream must be true, and store false; this endpoint requires instructions"
            ),
        ),
        ("open", {"include": ["other"], "max_output_tokens": 1}, ""),
        ("open", {"max_output_tokens": 0}, "max_output_tokens is 0, and must be at least 1"),
        (
            "silent",
            {"include": ["reasoning.encrypted_content"], "reasoning": {}},
            (
                "reasoning is not accepted here, and is {}; "
                "include asks for 'reasoning.encrypted_content', which this provider does not return"
            ),
        ),
    ],
)
def test_the_rules_of_a_dialect_are_told_in_full(dialect: str, fields: dict[str, Any], told: str) -> None:
    assert problems(HI, profile=Profile(provider="p", model="m", dialect=dialect), **fields) == told


def test_a_provider_that_keeps_the_conversation_checks_only_the_rest_of_the_order() -> None:
    for name in ("previous_response_id", "conversation"):
        kept: dict[str, Any] = {name: "x"}
        assert problems(HI, RESULT, **kept) == ""
        assert problems(HI, RESULT, CALL, **kept) == (
            "the conversation would be refused: the calls ['c1'] have no result"
        )


def test_steps_of_the_search_of_xai_are_items_of_its_own() -> None:
    step = {"type": "custom_tool_call", "call_id": "c1", "name": "search", "input": "x"}
    assert problems(HI, step, SAID, profile=Profile(provider="xai", model="grok-9", dialect="xai")) == ""
    assert problems(HI, step, SAID) == "the conversation would be refused: the calls ['c1'] have no result"


@pytest.mark.parametrize(("dialect", "least"), [("", 16), ("silent", 16), ("bedrock", 16), ("open", 1), ("xai", 1)])
def test_a_reply_may_be_exactly_as_short_as_the_provider_takes(dialect: str, least: int) -> None:
    profile = Profile(provider="p", model="m", dialect=dialect)
    assert problems(HI, profile=profile, max_output_tokens=least) == ""
    assert problems(HI, profile=profile, max_output_tokens=least - 1) == (
        f"max_output_tokens is {least - 1}, and must be at least {least}"
    )
