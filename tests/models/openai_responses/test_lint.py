"""What a provider of the Responses wire would refuse."""

from typing import Any

import pytest

from perdure.models.encoding_memo import ProviderRuleError
from perdure.models.openai_responses import WIRE
from perdure.models.openai_responses.dialect import DIALECTS
from perdure.models.openai_responses.message_rule_checks import ResponsesMessageRules
from perdure.models.profile import Profile
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
