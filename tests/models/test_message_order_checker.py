"""The order of messages that consist of blocks: who begins, who answers what, and what is told when it is wrong."""

from collections.abc import Mapping
from typing import Any

import pytest

from perdure._models.endpoint.memo import ProviderRuleError
from perdure._models.wires.message_order import (
    MessageBlocks,
    MessageOrderChecker,
    MessageOrderState,
    build_order_error,
)

HELLO: dict[str, Any] = {"role": "user", "blocks": ["Hello"]}
REPLY: dict[str, Any] = {"role": "assistant", "blocks": ["Hi"]}


def read(item: Mapping[str, Any]) -> MessageBlocks:
    blocks = [{"text": each} for each in item.get("blocks", ())]
    return MessageBlocks(blocks, item.get("calls", ()), item.get("results", ()))


def check(place: int, block: Mapping[str, Any]) -> None:
    if block["text"] == "bad":
        raise build_order_error(place, "a bad block")


def calling(*calls: str) -> dict[str, Any]:
    return {"role": "assistant", "blocks": ["calls"], "calls": calls}


def answering(*results: str) -> dict[str, Any]:
    return {"role": "user", "blocks": ["results"], "results": results}


def run(*items: Mapping[str, Any], is_continuation: bool = False) -> MessageOrderState:
    rules = MessageOrderChecker(read, check, is_continuation=is_continuation)
    state: MessageOrderState = rules.begin()
    for item in items:
        state = rules.step(state, item)
    rules.end(state)
    return state


@pytest.mark.parametrize(
    "items",
    [
        [HELLO],
        [HELLO, HELLO, REPLY, REPLY],
        [HELLO, calling("a", "b"), answering("b", "a"), REPLY],
        [HELLO, calling("a"), answering("a"), calling("a"), answering("a")],
    ],
)
def test_a_conversation_in_order_is_taken(items: list[Any]) -> None:
    assert run(*items) == MessageOrderState(len(items))


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ([], "messages[0]: there is nothing in the conversation; add a message"),
        ([{"role": "system"}], "messages[0]: the role 'system' is unknown; use 'user' or 'assistant'"),
        ([REPLY], "messages[0]: the first message is the assistant's; a conversation starts with the user"),
        ([HELLO, {"role": "assistant"}], "messages[1]: an empty message of the assistant"),
        (
            [HELLO, calling("b", "a", "c"), answering("c")],
            "messages[2]: the calls ['a', 'b'] are not answered by the message that follows them",
        ),
        ([HELLO, answering("b", "a")], "messages[1]: the results ['a', 'b'] belong to no call of the message before"),
        (
            [HELLO, calling("a"), answering("a", "b")],
            "messages[2]: the results ['b'] belong to no call of the message before",
        ),
        (
            [HELLO, calling("a", "b"), answering("b", "a", "a")],
            "messages[2]: a call is answered twice, among ['a', 'a', 'b']",
        ),
        (
            [{**calling("a"), "role": "user"}],
            "messages[0]: a tool call in a user message; only the assistant makes calls",
        ),
        ([HELLO, {"role": "user", "blocks": ["good", "bad"]}], "messages[1]: a bad block"),
        ([HELLO, calling("b", "a")], "messages[2]: the calls ['a', 'b'] have no results; each needs one"),
    ],
)
def test_what_is_out_of_order_is_told_with_its_place(items: list[Any], told: str) -> None:
    with pytest.raises(ProviderRuleError) as caught:
        run(*items)
    assert str(caught.value) == f"{told}. The request was not sent"


def test_a_conversation_that_goes_on_may_begin_with_the_assistant_and_counts_on() -> None:
    assert run(REPLY, HELLO, is_continuation=True) == MessageOrderState(3)
    with pytest.raises(ProviderRuleError, match="there is nothing in the conversation"):
        run(is_continuation=True)
    with pytest.raises(ProviderRuleError, match=r"^messages\[1\]: an empty message of the user"):
        run({"role": "user"}, is_continuation=True)


def test_a_step_says_how_many_messages_there_were_and_which_calls_are_open() -> None:
    rules = MessageOrderChecker(read, check)
    first = rules.step(rules.begin(), HELLO)
    assert rules.step(first, calling("a", "b")) == MessageOrderState(2, frozenset({"a", "b"}))
    assert first == MessageOrderState(1)
