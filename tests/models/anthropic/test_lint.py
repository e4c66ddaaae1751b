"""The rules of the provider, one by one."""

from typing import Any

import pytest

from perdure._models.wires.anthropic import WIRE
from perdure.models import Profile

PROFILE = Profile(provider="anthropic", model="claude-haiku-4-5")
HELLO = {"role": "user", "content": "Hello"}
SCHEMA = {"type": "object"}
TOOL = {"name": "f", "input_schema": SCHEMA}


def call(name: str = "c1", tool: str = "f") -> Any:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": name, "name": tool, "input": {}}]}


def result(*names: str, **more: Any) -> Any:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, **more} for name in names]}


def said(*blocks: Any, role: str = "assistant") -> Any:
    return {"role": role, "content": list(blocks)}


def text(words: str, **more: Any) -> Any:
    return {"type": "text", "text": words, **more}


def lint(*messages: Any, **more: Any) -> str:
    body = {"model": "m", "max_tokens": 10, "messages": list(messages) or [HELLO], **more}
    return " | ".join(WIRE.lint(body, PROFILE))


def test_what_would_be_accepted_breaks_no_rule() -> None:
    assert lint() == ""
    assert lint(HELLO, call(), result("c1"), said(text("done")), HELLO, tools=[TOOL]) == ""
    assert lint(HELLO, said(text("The answer is")), system="s", stop_sequences=["END"]) == ""


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([said(text("Hi"))], "the first message is the assistant's"),
        ([{"role": "system", "content": "x"}], "the role 'system'"),
        ([{"role": "user", "content": []}], "an empty message"),
        ([said(text(" "), role="user")], "a text that is blank"),
        ([said({"text": "x"}, role="user")], "without a type"),
        ([HELLO, said(text("x "))], "ends in blanks"),
        ([HELLO, call()], "have no results"),
        ([HELLO, call(), HELLO], "not answered by the message that follows"),
        ([HELLO, result("c9")], "belong to no call"),
        ([HELLO, call(), result("c1", "c1")], "answered twice"),
        ([HELLO, call("c 1"), result("c 1")], "the call id 'c 1'"),
        ([HELLO, call("c1", "no tool"), result("c1")], "the tool name 'no tool'"),
        ([HELLO, call(), result("c1"), call(), result("c1")], "used more than once"),
        ([HELLO, call(), result("c1", is_error=True)], "an error without content"),
        ([said(*call()["content"], role="user")], "only the assistant makes calls"),
        ([HELLO, said({"type": "thinking", "cache_control": {}}, text("x"))], "a thinking block has a cache marker"),
        ([said(*[text("x", cache_control={})] * 5, role="user")], "5 blocks have a cache marker"),
    ],
)
def test_a_rule_about_the_conversation_is_kept(messages: list[Any], problem: str) -> None:
    assert problem in lint(*messages, tools=[TOOL])


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ({"model": ""}, "no model is named"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"temperature": 1.5}, "temperature=1.5"),
        ({"stop_sequences": [" "]}, "a stop sequence that is blank"),
        ({"system": [text("")]}, "a block of the system prompt that is blank"),
        ({"tools": [{"name": "a b", "input_schema": SCHEMA}]}, "the tool name 'a b'"),
        ({"tools": [TOOL, TOOL]}, "two tools are named 'f'"),
        ({"tools": [{"name": "f", "input_schema": {}}]}, "not one of an object"),
        ({"tool_choice": {"type": "any"}}, "without tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "some"}}, "of the type 'some'"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "names 'g'"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10}}, "at least 1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "leaves no room"),
        ({"thinking": {"type": "adaptive"}, "temperature": 0.5}, "with thinking: leave it out"),
        ({"thinking": {"type": "adaptive"}, "top_p": 0.5}, "top_p=0.5"),
        ({"thinking": {"type": "adaptive"}, "tools": [TOOL], "tool_choice": {"type": "any"}}, "a call is forced"),
    ],
)
def test_a_rule_about_the_rest_is_kept(head: Any, problem: str) -> None:
    assert problem in lint(**head)


def test_calls_need_tools_beside_them() -> None:
    assert "no tools beside it" in lint(HELLO, call(), result("c1"))


@pytest.mark.parametrize(
    ("budget", "most", "complaint"),
    [(1024, 1025, ""), (1023, 1025, "at least 1024"), (1024, 1024, "leaves no room in max_tokens=1024")],
)
def test_thinking_may_take_exactly_the_least_and_must_leave_room(budget: int, most: int, complaint: str) -> None:
    found = lint(HELLO, thinking={"type": "enabled", "budget_tokens": budget}, max_tokens=most)
    assert complaint in found
    assert bool(found) is bool(complaint)


@pytest.mark.parametrize(("top_p", "complaint"), [(0.94, "top_p=0.94 with thinking"), (0.95, ""), (0.96, "")])
def test_thinking_takes_a_top_p_from_its_least_on(top_p: float, complaint: str) -> None:
    found = lint(HELLO, thinking={"type": "adaptive"}, top_p=top_p)
    assert complaint in found
    assert bool(found) is bool(complaint)


def test_exactly_four_blocks_may_have_a_cache_marker() -> None:
    marked = [text("a", cache_control={"type": "ephemeral"}) for _ in range(5)]
    assert lint(said(*marked[:4], role="user")) == ""
    assert "5 blocks have a cache marker; at most 4 may have one" in lint(said(*marked, role="user"))


def test_a_call_needs_an_id_at_compatible_servers_too() -> None:
    body = {"model": "m", "max_tokens": 10, "messages": [HELLO, call(""), result("")], "tools": [TOOL]}
    compatible = Profile(provider="minimax", model="MiniMax-M3")
    assert WIRE.lint(body, compatible) == ["messages[1]: a call of 'f' without an id. The request was not sent"]
    assert WIRE.lint(body, PROFILE) == [
        "messages[1]: the call id ''; letters, digits, `_` and `-` are taken. The request was not sent"
    ]


def test_compatible_servers_take_ids_that_anthropic_refuses() -> None:
    body = {"model": "m", "max_tokens": 10, "messages": [HELLO, call("c 1"), result("c 1")], "tools": [TOOL]}
    assert WIRE.lint(body, Profile(provider="minimax", model="MiniMax-M3")) == []


def test_sets_of_tools_that_the_provider_runs_need_no_names() -> None:
    sets = [{"type": "mcp_toolset", "mcp_server_name": name} for name in ("a", "b")]
    assert lint(tools=[*sets, TOOL]) == ""
    assert lint(tools=[*sets, {"type": "web_search_20250305", "name": "web_search"}]) == ""
    assert lint(tools=[*sets, TOOL, TOOL]) == "two tools are named 'f'"


def test_all_broken_rules_are_listed_in_order() -> None:
    found = lint(
        HELLO,
        call(),
        result("c1"),
        call(),
        result("c1"),
        model="",
        max_tokens=True,
        temperature=-0.5,
        stop_sequences=["\n", "END"],
        system=[text("Be brief."), {"type": "text"}],
        tools=[{"input_schema": SCHEMA}, {"name": "g", "type": "custom"}],
        tool_choice={"type": "tool", "name": "f"},
        thinking={"type": "adaptive"},
    )
    assert found.split(" | ") == [
        "the call id 'c1' is used more than once",
        "no model is named",
        "max_tokens=True: give a number of tokens, at least 1",
        "temperature=-0.5: from 0 to 1",
        "a stop sequence that is blank",
        "a block of the system prompt that is blank",
        "the tool name ''; letters, digits, `_` and `-` are taken",
        "the schema of the tool 'g' is not one of an object",
        "tool_choice names 'f', which is not among the tools",
        "temperature=-0.5 with thinking: leave it out",
        "a call is forced on a model that thinks",
    ]


@pytest.mark.parametrize(
    "head",
    [
        {"temperature": 0, "max_tokens": 1},
        {"temperature": 1},
        {"model": "", "anthropic_version": "vertex-2023-10-16"},
        {"tools": [TOOL], "tool_choice": {"type": "auto"}},
        {"tools": [TOOL], "tool_choice": {"type": "any"}},
        {"tools": [TOOL], "tool_choice": {"type": "none"}},
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "f"}},
        {"thinking": {"type": "disabled", "budget_tokens": 1}, "temperature": 0.5, "top_p": 0.1},
        {"thinking": {"type": "adaptive"}, "temperature": 1, "tools": [TOOL], "tool_choice": {"type": "auto"}},
    ],
)
def test_a_head_that_breaks_no_rule_is_taken(head: Any) -> None:
    assert lint(**head) == ""


def test_a_name_of_a_tool_has_at_most_128_characters() -> None:
    longest = "f" * 128
    assert lint(tools=[{"name": longest, "input_schema": SCHEMA}]) == ""
    assert lint(tools=[{"name": longest + "f", "input_schema": SCHEMA}]).startswith(f"the tool name '{longest}f';")


@pytest.mark.parametrize("kind", ["text", "tool_use"])
def test_only_a_text_at_the_end_may_not_end_in_blanks(kind: str) -> None:
    blocks = {"text": text("x \n"), "tool_use": {"type": "new", "text": "x "}}
    found = lint(HELLO, said(blocks[kind]))
    assert found == ("the last message is the model's and ends in blanks" if kind == "text" else "")
    assert lint(said(text("x "), role="user")) == ""


def test_an_error_without_content_is_refused_and_an_empty_success_is_not() -> None:
    assert lint(HELLO, call(), result("c1", is_error=True), tools=[TOOL]) == (
        "messages[2]: the result 'c1' is an error without content. The request was not sent"
    )
    assert lint(HELLO, call(), result("c1", is_error=False), tools=[TOOL]) == ""
    assert lint(HELLO, call(), result("c1", is_error=True, content="x"), tools=[TOOL]) == ""
