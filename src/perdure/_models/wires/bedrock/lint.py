"""Check request bodies offline against the rules of the Converse API (Bedrock). No I/O.

`MESSAGE_RULES` are about the order of messages and are checked once per message, before adjacent ones are joined;
`lint` checks a complete body, for tests and for finding out why a request was refused.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from perdure._models.endpoint.memo import Item, ProviderRuleError
from perdure._models.endpoint.profile import Profile
from perdure._models.wires.lenient_json import as_dict, as_dicts, as_text
from perdure._models.wires.message_order import MessageBlocks, MessageOrderChecker, build_order_error

from .features import get_model_features
from .messages import is_call_id

MAX_CACHE_MARKERS = 4
"""Maximum number of cache markers."""

_is_tool_name = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_is_document_title = re.compile(r"[A-Za-z0-9()\[\]-]+( [A-Za-z0-9()\[\]-]+)*").fullmatch
_CHOICES = frozenset({"auto", "any", "tool"})


def _unwrap_blocks(blocks: Sequence[Mapping[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [as_dict(block[kind]) for block in blocks if kind in block]


def _read_item(item: Item) -> MessageBlocks:
    """Return the blocks, call ids and result ids of a message, without calls that the provider answered itself."""
    blocks = as_dicts(item.get("content"))
    calls = [each for each in _unwrap_blocks(blocks, "toolUse") if each.get("type", "tool_use") == "tool_use"]
    results = _unwrap_blocks(blocks, "toolResult") if item.get("role") == "user" else []
    return MessageBlocks(
        blocks, [as_text(each.get("toolUseId")) for each in calls], [as_text(each.get("toolUseId")) for each in results]
    )


def _check_block(place: int, block: Mapping[str, Any]) -> None:
    match block:
        case {"text": str(said)} if not said:
            raise build_order_error(place, "a text that is empty")
        case {"toolUse": {"toolUseId": str(name)}} if not is_call_id(name):
            raise build_order_error(place, f"the call id {name!r}; up to 64 letters, digits, `_` and `-` are taken")
        case {"toolUse": {"name": str(name)}} if not _is_tool_name(name):
            raise build_order_error(place, f"the tool name {name!r}; up to 64 letters, digits, `_` and `-` are taken")
        case {"toolResult": {"toolUseId": str(name), "content": []}}:
            raise build_order_error(place, f"the result {name!r} is empty")
        case {"document": {"name": str(name)}} if not _is_document_title(name):
            raise build_order_error(
                place, f"the document name {name!r}; letters, digits, `-`, brackets, single spaces are taken"
            )
        case _ if len(block) != 1:
            raise build_order_error(place, f"a block of {len(block)} kinds: {sorted(block)}; each has one")
        case _:
            pass


MESSAGE_RULES = MessageOrderChecker(_read_item, _check_block)
"""Message rules for a conversation from its start."""
MESSAGE_RULES_AFTER_OPENING = MessageOrderChecker(_read_item, _check_block, is_continuation=True)
"""Message rules for a conversation that gets an opening message put before it."""


# -- a whole body ------------------------------------------------------------------------------------------------------


def lint(body: Mapping[str, Any], profile: Profile) -> list[str]:
    """Return a sentence for each rule of the Converse API that a request body breaks."""
    checks = (_lint_messages, _lint_role_order, _lint_ids, _lint_tools, _lint_settings, _lint_cache_markers)
    return [problem for check in checks for problem in check(body, profile)]


def _get_items(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return as_dicts(body.get("messages"))


def _get_blocks(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [block for item in _get_items(body) for block in as_dicts(item.get("content"))]


def _lint_messages(body: Mapping[str, Any], _profile: Profile) -> Iterator[str]:
    state = MESSAGE_RULES.begin()
    try:
        for item in _get_items(body):
            state = MESSAGE_RULES.step(state, item)
        MESSAGE_RULES.end(state)
    except ProviderRuleError as broken:
        yield str(broken)
        return
    last = as_dicts(_get_items(body)[-1]["content"])[-1]
    if _get_items(body)[-1]["role"] == "assistant" and as_text(last.get("text")) != as_text(last.get("text")).rstrip():
        yield "the last message is the model's and ends in blanks"


def _lint_role_order(body: Mapping[str, Any], profile: Profile) -> Iterator[str]:
    """Check that roles alternate. Claude models are exempt: they join adjacent messages of one role."""
    roles = [item.get("role") for item in _get_items(body)]
    if get_model_features(profile.dialect, profile.model).thinking != "claude":
        for place, (one, other) in enumerate(pairwise(roles), 1):
            if one == other:
                yield f"messages[{place}]: two messages of the {one} in a row; roles have to alternate"


def _lint_ids(body: Mapping[str, Any], _profile: Profile) -> Iterator[str]:
    blocks = _get_blocks(body)
    ids = [as_text(each.get("toolUseId")) for each in _unwrap_blocks(blocks, "toolUse")]
    for repeated in sorted({each for each in ids if ids.count(each) > 1}):
        yield f"the call id {repeated!r} is used more than once"
    if ids and not as_dict(body.get("toolConfig")).get("tools"):
        yield "there are calls in the conversation and no tools beside it"
    titles = [as_text(each.get("name")) for each in _unwrap_blocks(blocks, "document")]
    for repeated in sorted({each for each in titles if titles.count(each) > 1}):
        yield f"two documents are named {repeated!r}"


def _lint_tools(body: Mapping[str, Any], _profile: Profile) -> Iterator[str]:
    config = as_dict(body.get("toolConfig"))
    specs = _unwrap_blocks(as_dicts(config.get("tools")), "toolSpec")
    names = [as_text(spec.get("name")) for spec in specs]
    if config and not as_dicts(config.get("tools")):
        yield "toolConfig without tools"
    for name in names:
        if not _is_tool_name(name):
            yield f"the tool name {name!r}; up to 64 letters, digits, `_` and `-` are taken"
        if names.count(name) > 1:
            yield f"two tools are named {name!r}"
    for spec in specs:
        if as_dict(as_dict(spec.get("inputSchema")).get("json")).get("type") != "object":
            yield f"the schema of the tool {spec.get('name')!r} is not one of an object"
        if "description" in spec and not as_text(spec["description"]):
            yield f"the description of the tool {spec.get('name')!r} is empty; leave it out"
    choice = as_dict(config.get("toolChoice"))
    if choice and (len(choice) != 1 or not _CHOICES.issuperset(choice)):
        yield f"toolChoice={choice!r}: one of {sorted(_CHOICES)}"
    chosen = as_dict(choice.get("tool")).get("name")
    if chosen is not None and chosen not in names:
        yield f"toolChoice names {chosen!r}, which is not among the tools"


def _lint_settings(body: Mapping[str, Any], _profile: Profile) -> Iterator[str]:
    config = as_dict(body.get("inferenceConfig"))
    most = config.get("maxTokens", 1)
    if type(most) is not int or most < 1:
        yield f"maxTokens={most!r}: give a number of tokens, at least 1"
    if not 0 <= config.get("temperature", 1) <= 1:
        yield f"temperature={config['temperature']!r}: from 0 to 1"
    for block in as_dicts(body.get("system")):
        if block.get("text") == "":
            yield "a block of the system prompt that is empty"
    thinking = as_dict(as_dict(body.get("additionalModelRequestFields")).get("thinking"))
    if thinking.get("type") not in {"enabled", "adaptive"}:
        return
    if config.get("temperature", 1) != 1:
        yield f"temperature={config['temperature']!r} with thinking: leave it out"
    if "maxTokens" in config and thinking.get("budget_tokens", 0) >= most:
        yield f"budget_tokens={thinking['budget_tokens']!r} leaves no room in maxTokens={most!r}"
    if {"any", "tool"} & set(as_dict(as_dict(body.get("toolConfig")).get("toolChoice"))):
        yield "a call is forced on a model that thinks"


def _lint_cache_markers(body: Mapping[str, Any], _profile: Profile) -> Iterator[str]:
    tools = as_dicts(as_dict(body.get("toolConfig")).get("tools"))
    marks = sum("cachePoint" in block for block in [*tools, *as_dicts(body.get("system")), *_get_blocks(body)])
    if marks > MAX_CACHE_MARKERS:
        yield f"{marks} cache markers; at most {MAX_CACHE_MARKERS} are allowed"
    for item in _get_items(body):
        blocks = as_dicts(item.get("content"))
        for one, other in pairwise(blocks):
            if "cachePoint" in other and "document" in one:
                yield "a cache marker directly after a document; put text between them"
