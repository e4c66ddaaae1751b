"""The rules of the provider, one by one."""

from typing import Any

import pytest

from perdure.models.bedrock import WIRE
from perdure.models.profile import Profile

PROFILE = Profile(provider="bedrock", model="us.amazon.nova-lite-v1:0")
HELLO = {"role": "user", "content": [{"text": "Hello"}]}
TOOL = {"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}
MARK = {"cachePoint": {"type": "default"}}
DOCUMENT = {"document": {"name": "a", "format": "pdf", "source": {}}}


def call(name: str = "c1", tool: str = "f") -> Any:
    return {"role": "assistant", "content": [{"toolUse": {"toolUseId": name, "name": tool, "input": {}}}]}


def result(*names: str) -> Any:
    return told(*[{"toolResult": {"toolUseId": name, "content": [{"text": "x"}]}} for name in names])


def told(*blocks: Any, role: str = "user") -> Any:
    return {"role": role, "content": list(blocks)}


def lint(*messages: Any, model: str = PROFILE.model, **more: Any) -> str:
    profile = Profile(provider="bedrock", model=model)
    return " | ".join(WIRE.lint({"messages": list(messages) or [HELLO], **more}, profile))


def test_what_would_be_accepted_breaks_no_rule() -> None:
    assert lint() == ""
    said = told({"text": "done"}, role="assistant")
    assert lint(HELLO, call(), result("c1"), said, HELLO, toolConfig={"tools": [TOOL, MARK]}) == ""
    assert lint(HELLO, HELLO, model="anthropic.claude-haiku-4-5") == ""


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([told({"text": "x"}, role="assistant")], "the first message is the assistant's"),
        ([told({"text": "x"}, role="system")], "the role 'system'"),
        ([told()], "an empty message"),
        ([told({"text": ""})], "a text that is empty"),
        ([HELLO, HELLO], "have to alternate"),
        ([HELLO, told({"text": "x "}, role="assistant")], "ends in blanks"),
        ([HELLO, call()], "have no results"),
        ([HELLO, call(), HELLO], "not answered by the message that follows them"),
        ([HELLO, call(), call("c2"), result("c2")], "not answered by the message that follows them"),
        ([result("c9")], "belong to no call"),
        ([HELLO, call(), result("c1", "c1")], "answered twice"),
        ([HELLO, call("c 1"), result("c 1")], "the call id 'c 1'"),
        ([HELLO, call("c1", "no tool"), result("c1")], "the tool name 'no tool'"),
        ([HELLO, call(), result("c1"), call(), result("c1")], "used more than once"),
        ([HELLO, call(), told({"toolResult": {"toolUseId": "c1", "content": []}})], "is empty"),
        ([told(*call()["content"])], "only the assistant makes calls"),
        ([told({"document": {"name": "a.pdf"}}, {"text": "x"})], "the document name 'a.pdf'"),
        ([told(DOCUMENT, {"text": "x"}, DOCUMENT)], "two documents are named 'a'"),
        ([told(DOCUMENT, MARK, {"text": "x"})], "directly after a document"),
        ([told({"text": "x", "image": {}})], "a block of 2 kinds"),
        ([told({"text": "x"}, *[MARK] * 5)], "5 cache markers"),
    ],
)
def test_a_rule_about_the_conversation_is_kept(messages: list[Any], problem: str) -> None:
    assert problem in lint(*messages, toolConfig={"tools": [TOOL]})


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ({"toolConfig": {"toolChoice": {"auto": {}}}}, "toolConfig without tools"),
        ({"toolConfig": {"tools": [{"toolSpec": {"name": "a b"}}]}}, "the tool name 'a b'"),
        ({"toolConfig": {"tools": [TOOL, TOOL]}}, "two tools are named 'f'"),
        ({"toolConfig": {"tools": [{"toolSpec": {"name": "f"}}]}}, "not one of an object"),
        ({"toolConfig": {"tools": [{"toolSpec": {**TOOL["toolSpec"], "description": ""}}]}}, "is empty"),
        ({"toolConfig": {"tools": [TOOL], "toolChoice": {"none": {}}}}, "one of ['any', 'auto', 'tool']"),
        ({"toolConfig": {"tools": [TOOL], "toolChoice": {"tool": {"name": "g"}}}}, "names 'g'"),
        ({"inferenceConfig": {"maxTokens": 0}}, "maxTokens=0"),
        ({"inferenceConfig": {"temperature": 2}}, "temperature=2"),
        ({"system": [{"text": ""}]}, "a block of the system prompt that is empty"),
    ],
)
def test_a_rule_about_the_rest_is_kept(head: Any, problem: str) -> None:
    assert problem in lint(**head)


def test_a_model_that_thinks_has_rules_of_its_own() -> None:
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    config = {"temperature": 0.5, "maxTokens": 2000}
    forced = {"tools": [TOOL], "toolChoice": {"any": {}}}
    problems = lint(additionalModelRequestFields=thinking, inferenceConfig=config, toolConfig=forced)
    assert "leave it out" in problems
    assert "leaves no room" in problems
    assert "a call is forced" in problems


def test_calls_need_tools_beside_them() -> None:
    assert "no tools beside it" in lint(HELLO, call(), result("c1"))


@pytest.mark.parametrize("kind", ["enabled", "adaptive"])
def test_a_model_that_thinks_within_its_limit_breaks_no_rule(kind: str) -> None:
    fields: Any = {"thinking": {"type": kind}}
    assert lint(additionalModelRequestFields=fields, inferenceConfig={"maxTokens": 1}) == ""
    fields["thinking"]["budget_tokens"] = 1024
    assert lint(additionalModelRequestFields=fields, inferenceConfig={"maxTokens": 1025, "temperature": 1}) == ""
    assert lint(additionalModelRequestFields=fields) == ""
    assert lint(additionalModelRequestFields=fields, inferenceConfig={"maxTokens": 1024, "temperature": 0}) == (
        "temperature=0 with thinking: leave it out | budget_tokens=1024 leaves no room in maxTokens=1024"
    )
    off: Any = {"thinking": {"type": "disabled", "budget_tokens": 9}}
    assert lint(additionalModelRequestFields=off, inferenceConfig={"maxTokens": 1, "temperature": 0}) == ""


@pytest.mark.parametrize(("field", "value"), [("maxTokens", 0), ("maxTokens", 1.5), ("maxTokens", True)])
def test_a_limit_of_a_reply_is_a_number_of_tokens(field: str, value: Any) -> None:
    assert lint(inferenceConfig={field: value}) == f"maxTokens={value!r}: give a number of tokens, at least 1"


@pytest.mark.parametrize(("value", "is_sound"), [(0, True), (1, True), (-0.1, False), (1.1, False)])
def test_a_temperature_is_from_0_to_1(value: float, is_sound: bool) -> None:
    assert lint(inferenceConfig={"temperature": value}) == ("" if is_sound else f"temperature={value!r}: from 0 to 1")
