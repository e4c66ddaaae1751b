"""The rules of the provider, checked offline: nothing that breaks one is sent. Pure. Above: the wire. Below: `memo.py`.

`RULES` are about the order of messages and are checked once for each message, before neighbours are joined; `lint`
looks at a whole body, and is for tests and for whoever wants to know why something was refused.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from perdure.models.block_order import BlockOrder, Reading, broken
from perdure.models.memo import BrokenRule, Item
from perdure.models.profile import Profile
from perdure.models.untrusted import mapping, mappings, text

from .dialect import dialect_of

MOST_MARKS = 4
"""How many marks for the cache there may be."""

_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}").fullmatch
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_TITLE = re.compile(r"[A-Za-z0-9()\[\]-]+( [A-Za-z0-9()\[\]-]+)*").fullmatch
_CHOICES = frozenset({"auto", "any", "tool"})


def _inside(blocks: Sequence[Mapping[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [mapping(block[kind]) for block in blocks if kind in block]


def _read(item: Item) -> Reading:
    """Calls and results that the provider made itself, in what the model said, are nobody's to answer."""
    blocks = mappings(item.get("content"))
    calls = [each for each in _inside(blocks, "toolUse") if each.get("type", "tool_use") == "tool_use"]
    results = _inside(blocks, "toolResult") if item.get("role") == "user" else []
    return Reading(
        blocks, [text(each.get("toolUseId")) for each in calls], [text(each.get("toolUseId")) for each in results]
    )


def _check_block(place: int, block: Mapping[str, Any]) -> None:
    match block:
        case {"text": str(said)} if not said:
            raise broken(place, "a text that is empty")
        case {"toolUse": {"toolUseId": str(name)}} if not _ID(name):
            raise broken(place, f"the call id {name!r}; up to 64 letters, digits, `_` and `-` are taken")
        case {"toolUse": {"name": str(name)}} if not _TOOL_NAME(name):
            raise broken(place, f"the tool name {name!r}; up to 64 letters, digits, `_` and `-` are taken")
        case {"toolResult": {"toolUseId": str(name), "content": []}}:
            raise broken(place, f"the result {name!r} has nothing in it")
        case {"document": {"name": str(name)}} if not _TITLE(name):
            raise broken(place, f"the document name {name!r}; letters, digits, `-`, brackets, single spaces are taken")
        case _ if len(block) != 1:
            raise broken(place, f"a block of {len(block)} kinds: {sorted(block)}; each has one")
        case _:
            pass


RULES = BlockOrder(_read, _check_block)
"""For a conversation from its beginning on."""
FROM_THE_MIDDLE = BlockOrder(_read, _check_block, in_the_middle=True)
"""For one in front of which something is going to be put."""


# -- a whole body ------------------------------------------------------------------------------------------------------


def lint(body: Mapping[str, Any], profile: Profile) -> list[str]:
    """Which rules a body breaks, each in a sentence."""
    checks = (_conversation, _turns, _identities, _tools, _settings, _cache)
    return [problem for check in checks for problem in check(body, profile)]


def _items(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return mappings(body.get("messages"))


def _blocks(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [block for item in _items(body) for block in mappings(item.get("content"))]


def _conversation(body: Mapping[str, Any], _profile: Profile) -> Iterator[str]:
    state = RULES.begin()
    try:
        for item in _items(body):
            state = RULES.step(state, item)
        RULES.end(state)
    except BrokenRule as broken:
        yield str(broken)
        return
    last = mappings(_items(body)[-1]["content"])[-1]
    if _items(body)[-1]["role"] == "assistant" and text(last.get("text")) != text(last.get("text")).rstrip():
        yield "the last message is the model's and ends in blanks"


def _turns(body: Mapping[str, Any], profile: Profile) -> Iterator[str]:
    """Claude alone joins neighbours of one role by itself."""
    roles = [item.get("role") for item in _items(body)]
    if dialect_of(profile.dialect, profile.model).thinking != "claude":
        for place, (one, other) in enumerate(pairwise(roles), 1):
            if one == other:
                yield f"messages[{place}]: two messages of the {one} in a row; roles have to take turns"


def _identities(body: Mapping[str, Any], _profile: Profile) -> Iterator[str]:
    blocks = _blocks(body)
    ids = [text(each.get("toolUseId")) for each in _inside(blocks, "toolUse")]
    for repeated in sorted({each for each in ids if ids.count(each) > 1}):
        yield f"the call id {repeated!r} is used more than once"
    if ids and not mapping(body.get("toolConfig")).get("tools"):
        yield "there are calls in the conversation and no tools beside it"
    titles = [text(each.get("name")) for each in _inside(blocks, "document")]
    for repeated in sorted({each for each in titles if titles.count(each) > 1}):
        yield f"two documents are named {repeated!r}"


def _tools(body: Mapping[str, Any], _profile: Profile) -> Iterator[str]:
    config = mapping(body.get("toolConfig"))
    specs = _inside(mappings(config.get("tools")), "toolSpec")
    names = [text(spec.get("name")) for spec in specs]
    if config and not mappings(config.get("tools")):
        yield "toolConfig without tools"
    for name in names:
        if not _TOOL_NAME(name):
            yield f"the tool name {name!r}; up to 64 letters, digits, `_` and `-` are taken"
        if names.count(name) > 1:
            yield f"two tools are named {name!r}"
    for spec in specs:
        if mapping(mapping(spec.get("inputSchema")).get("json")).get("type") != "object":
            yield f"the schema of the tool {spec.get('name')!r} is not one of an object"
        if "description" in spec and not text(spec["description"]):
            yield f"the description of the tool {spec.get('name')!r} is empty; leave it out"
    choice = mapping(config.get("toolChoice"))
    if choice and (len(choice) != 1 or not _CHOICES.issuperset(choice)):
        yield f"toolChoice={choice!r}: one of {sorted(_CHOICES)}"
    chosen = mapping(choice.get("tool")).get("name")
    if chosen is not None and chosen not in names:
        yield f"toolChoice names {chosen!r}, which is not among the tools"


def _settings(body: Mapping[str, Any], _profile: Profile) -> Iterator[str]:
    config = mapping(body.get("inferenceConfig"))
    most = config.get("maxTokens", 1)
    if type(most) is not int or most < 1:
        yield f"maxTokens={most!r}: say how much may be written, from 1 on"
    if not 0 <= config.get("temperature", 1) <= 1:
        yield f"temperature={config['temperature']!r}: from 0 to 1"
    for block in mappings(body.get("system")):
        if block.get("text") == "":
            yield "a block of the system prompt that is empty"
    thinking = mapping(mapping(body.get("additionalModelRequestFields")).get("thinking"))
    if thinking.get("type") not in {"enabled", "adaptive"}:
        return
    if config.get("temperature", 1) != 1:
        yield f"temperature={config['temperature']!r} with thinking: leave it out"
    if "maxTokens" in config and thinking.get("budget_tokens", 0) >= most:
        yield f"budget_tokens={thinking['budget_tokens']!r} leaves no room in maxTokens={most!r}"
    if {"any", "tool"} & set(mapping(mapping(body.get("toolConfig")).get("toolChoice"))):
        yield "a call is forced on a model that thinks"


def _cache(body: Mapping[str, Any], _profile: Profile) -> Iterator[str]:
    tools = mappings(mapping(body.get("toolConfig")).get("tools"))
    marks = sum("cachePoint" in block for block in [*tools, *mappings(body.get("system")), *_blocks(body)])
    if marks > MOST_MARKS:
        yield f"{marks} marks for the cache; at most {MOST_MARKS} may be set"
    for item in _items(body):
        blocks = mappings(item.get("content"))
        for one, other in pairwise(blocks):
            if "cachePoint" in other and "document" in one:
                yield "a mark for the cache right behind a document; put words between them"
