"""The rules of the provider, one by one."""

from typing import Any

import pytest

from perdure._models.wires.bedrock import WIRE
from perdure.models import Profile

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


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([told({"text": ""})], "messages[0]: a text that is empty. The request was not sent"),
        (
            [HELLO, call("c" * 65), result("c" * 65)],
            (
                f"messages[1]: the call id '{'c' * 65}'; up to 64 letters, digits, `_` and `-` are taken. "
                "The request was not sent"
            ),
        ),
        (
            [HELLO, call("c1", "t" * 65), result("c1")],
            (
                f"messages[1]: the tool name '{'t' * 65}'; up to 64 letters, digits, `_` and `-` are taken. "
                "The request was not sent"
            ),
        ),
        (
            [HELLO, call(), told({"toolResult": {"toolUseId": "c1", "content": []}})],
            "messages[2]: the result 'c1' is empty. The request was not sent",
        ),
        (
            [told({"document": {"name": "a  b"}}, {"text": "x"})],
            (
                "messages[0]: the document name 'a  b'; letters, digits, `-`, brackets, single spaces are taken. "
                "The request was not sent"
            ),
        ),
        (
            [told({"text": "x", "image": {}})],
            "messages[0]: a block of 2 kinds: ['image', 'text']; each has one. The request was not sent",
        ),
        ([told({})], "messages[0]: a block of 0 kinds: []; each has one. The request was not sent"),
        (
            [HELLO, told({"text": "x"}, role="assistant"), HELLO, HELLO],
            "messages[3]: two messages of the user in a row; roles have to alternate",
        ),
        ([HELLO, told({"text": "x\n"}, role="assistant")], "the last message is the model's and ends in blanks"),
        ([told({"text": "x "})], ""),
        ([HELLO, call("c" * 64, "t" * 64), result("c" * 64)], ""),
        ([told({"document": {"name": "a (b) [c]-d"}}, {"text": "x"})], ""),
        ([told(DOCUMENT, {"text": "x"}, MARK)], ""),
        ([told({"text": "x"}, *[MARK] * 4)], ""),
    ],
)
def test_a_rule_about_the_conversation_is_told_in_full(messages: list[Any], problem: str) -> None:
    assert lint(*messages, toolConfig={"tools": [TOOL]}) == problem


def test_calls_that_the_provider_answered_itself_need_no_results() -> None:
    used = {"toolUse": {"toolUseId": "s1", "name": "f", "type": "server_tool_use", "input": {}}}
    answered = {"toolResult": {"toolUseId": "s1", "content": [{"text": "x"}]}}
    said = told(used, answered, {"text": "done"}, role="assistant")
    assert lint(HELLO, said, toolConfig={"tools": [TOOL]}) == ""


def test_all_that_is_wrong_with_a_body_is_listed_in_order() -> None:
    nameless: dict[str, Any] = {"toolSpec": {"name": "a b", "description": ""}}
    found = lint(
        told(DOCUMENT, MARK, {"text": "x"}, DOCUMENT, MARK, *[MARK] * 3),
        toolConfig={"tools": [nameless, TOOL, TOOL], "toolChoice": {"auto": {}, "any": {}}},
        inferenceConfig={"maxTokens": "many", "temperature": 1.5},
        system=[{"text": ""}, MARK],
    )
    assert found.split(" | ") == [
        "two documents are named 'a'",
        "the tool name 'a b'; up to 64 letters, digits, `_` and `-` are taken",
        "two tools are named 'f'",
        "two tools are named 'f'",
        "the schema of the tool 'a b' is not one of an object",
        "the description of the tool 'a b' is empty; leave it out",
        "toolChoice={'auto': {}, 'any': {}}: one of ['any', 'auto', 'tool']",
        "maxTokens='many': give a number of tokens, at least 1",
        "temperature=1.5: from 0 to 1",
        "a block of the system prompt that is empty",
        "6 cache markers; at most 4 are allowed",
        "a cache marker directly after a document; put text between them",
        "a cache marker directly after a document; put text between them",
    ]


@pytest.mark.parametrize("choice", [{"auto": {}}, {"any": {}}, {"tool": {"name": "f"}}])
def test_a_choice_of_a_tool_that_is_there_is_taken(choice: Any) -> None:
    assert lint(toolConfig={"tools": [TOOL], "toolChoice": choice}) == ""
