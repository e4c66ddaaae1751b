"""The rules of the provider, checked offline: nothing that breaks one is sent. Pure. Above: the wire. Below: `memo.py`.

`RULES` are about the order of messages and are checked once for each message; `lint` looks at a whole body, and is
for tests and for whoever wants to know why something was refused.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.models.block_order import BlockOrder, Reading, broken
from perdure.models.memo import BrokenRule, Item
from perdure.models.untrusted import mapping, mappings

from .thinking import LEAST_BUDGET

MOST_MARKS = 4
"""How many blocks may be marked for the cache."""

_ID = re.compile(r"[A-Za-z0-9_-]+").fullmatch
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}").fullmatch
_LEAST_TOP_P = 0.95


def blocks_of(item: Item) -> Sequence[Mapping[str, Any]]:
    """What an item holds; words alone may stand for a block of text."""
    content = item.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return mappings(content)


def _read(item: Item) -> Reading:
    blocks = blocks_of(item)
    calls = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
    return Reading(
        blocks, calls, [str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
    )


def _check_block(place: int, block: Mapping[str, Any]) -> None:
    match block.get("type"):
        case "text" if not str(block.get("text", "")).strip():
            raise broken(place, "a text that is blank")
        case "tool_use" if not _ID(str(block.get("id", ""))):
            raise broken(place, f"the call id {block.get('id')!r}; letters, digits, `_` and `-` are taken")
        case "tool_use" if not _TOOL_NAME(str(block.get("name", ""))):
            raise broken(place, f"the tool name {block.get('name')!r}; letters, digits, `_` and `-` are taken")
        case "tool_result" if block.get("is_error") and not block.get("content"):
            raise broken(place, f"the result {block.get('tool_use_id')!r} is an error that says nothing")
        case "thinking" | "redacted_thinking" if "cache_control" in block:
            raise broken(place, "a thought is marked for the cache; mark another block")
        case None | "":
            raise broken(place, f"a block without a type: {sorted(block)}")
        case _:
            pass


RULES = BlockOrder(_read, _check_block)
"""For a conversation from its beginning on."""
FROM_THE_MIDDLE = BlockOrder(_read, _check_block, in_the_middle=True)
"""For one in front of which something is going to be put."""


# -- a whole body ------------------------------------------------------------------------------------------------------


def lint(body: Mapping[str, Any]) -> list[str]:
    """Which rules a body breaks, each in a sentence."""
    checks = (_conversation, _identities, _head, _tools, _tool_choice, _thinking, _cache)
    return [problem for check in checks for problem in check(body)]


def _conversation(body: Mapping[str, Any]) -> Iterator[str]:
    items = mappings(body.get("messages"))
    state = RULES.begin()
    try:
        for item in items:
            state = RULES.step(state, item)
        RULES.end(state)
    except BrokenRule as broken:
        yield str(broken)
        return
    last = blocks_of(items[-1])[-1]
    if items[-1]["role"] == "assistant" and last.get("type") == "text" and last["text"] != last["text"].rstrip():
        yield "the last message is the model's and ends in blanks"


def _all_blocks(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for item in mappings(body.get("messages")):
        yield from blocks_of(item)


def _identities(body: Mapping[str, Any]) -> Iterator[str]:
    ids = [block.get("id") for block in _all_blocks(body) if block.get("type") == "tool_use"]
    for repeated in sorted({str(each) for each in ids if ids.count(each) > 1}):
        yield f"the call id {repeated!r} is used more than once"
    if ids and not body.get("tools"):
        yield "there are calls in the conversation and no tools beside it"


def _head(body: Mapping[str, Any]) -> Iterator[str]:
    if not body.get("model") and not body.get("anthropic_version"):  # elsewhere the address names the model
        yield "no model is named"
    most = body.get("max_tokens")
    if type(most) is not int or most < 1:
        yield f"max_tokens={most!r}: say how much may be written, from 1 on"
    if not 0 <= body.get("temperature", 1) <= 1:
        yield f"temperature={body['temperature']!r}: from 0 to 1"
    for stop in body.get("stop_sequences") or ():
        if not str(stop).strip():
            yield "a stop sequence that is blank"
    for block in mappings(body.get("system")):
        if not str(block.get("text", "")).strip():
            yield "a block of the system prompt that is blank"


def _tools(body: Mapping[str, Any]) -> Iterator[str]:
    names: set[str] = set()
    for tool in mappings(body.get("tools")):
        name = str(tool.get("name", ""))
        if not _TOOL_NAME(name):
            yield f"the tool name {name!r}; letters, digits, `_` and `-` are taken"
        if name in names:
            yield f"two tools are named {name!r}"
        names.add(name)
        if tool.get("type", "custom") == "custom" and mapping(tool.get("input_schema")).get("type") != "object":
            yield f"the schema of the tool {name!r} is not one of an object"


def _tool_choice(body: Mapping[str, Any]) -> Iterator[str]:
    choice = mapping(body.get("tool_choice"))
    if not choice:
        return
    kind = choice.get("type")
    if not body.get("tools"):
        yield "tool_choice without tools"
    elif kind not in {"auto", "any", "tool", "none"}:
        yield f"tool_choice of the type {kind!r}"
    elif kind == "tool" and choice.get("name") not in [tool.get("name") for tool in mappings(body.get("tools"))]:
        yield f"tool_choice names {choice.get('name')!r}, which is not among the tools"


def _thinking(body: Mapping[str, Any]) -> Iterator[str]:
    thinking = mapping(body.get("thinking"))
    if thinking.get("type") not in {"enabled", "adaptive"}:
        return
    budget = thinking.get("budget_tokens", LEAST_BUDGET)
    if budget < LEAST_BUDGET:
        yield f"budget_tokens={budget!r}: at least {LEAST_BUDGET}"
    if thinking["type"] == "enabled" and budget >= body.get("max_tokens", 0):
        yield f"budget_tokens={budget!r} leaves no room in max_tokens={body.get('max_tokens')!r}"
    if body.get("temperature", 1) != 1:
        yield f"temperature={body['temperature']!r} with thinking: leave it out"
    if body.get("top_p", 1) < _LEAST_TOP_P:
        yield f"top_p={body['top_p']!r} with thinking: from {_LEAST_TOP_P} on"
    if mapping(body.get("tool_choice")).get("type") in {"any", "tool"}:
        yield "a call is forced on a model that thinks"


def _cache(body: Mapping[str, Any]) -> Iterator[str]:
    places = [*mappings(body.get("tools")), *mappings(body.get("system")), *_all_blocks(body)]
    marks = sum("cache_control" in block for block in places)
    if marks > MOST_MARKS:
        yield f"{marks} blocks are marked for the cache; at most {MOST_MARKS} may be"
