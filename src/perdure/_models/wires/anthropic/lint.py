"""Check request bodies offline against the rules of the Messages API. No I/O.

`get_message_rules` returns the rules about the order of messages, which are checked while they are encoded; `lint`
checks a complete body, for tests and for finding out why a request was refused.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from perdure._models.endpoint.memo import Item, ProviderRuleError
from perdure._models.endpoint.profile import Profile
from perdure._models.wires.lenient_json import as_dict, as_dicts
from perdure._models.wires.message_order import MessageBlocks, MessageOrderChecker, build_order_error

from .features import MIN_THINKING_TOKENS, get_model_features
from .messages import is_call_id

MAX_CACHE_MARKERS = 4
"""Maximum number of blocks with a cache marker."""

_is_tool_name = re.compile(r"[A-Za-z0-9_-]{1,128}").fullmatch
_MIN_TOP_P = 0.95


def get_content_blocks(item: Item) -> Sequence[Mapping[str, Any]]:
    """Return the content blocks of a message; a string counts as one text block."""
    content = item.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return as_dicts(content)


def _read_item(item: Item) -> MessageBlocks:
    blocks = get_content_blocks(item)
    calls = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
    return MessageBlocks(
        blocks, calls, [str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
    )


def _check_block(place: int, block: Mapping[str, Any]) -> None:
    match block.get("type"):
        case "text" if not str(block.get("text", "")).strip():
            raise build_order_error(place, "a text that is blank")
        case "tool_use" if not block.get("id"):
            raise build_order_error(place, f"a call of {block.get('name')!r} without an id")
        case "tool_use" if not _is_tool_name(str(block.get("name", ""))):
            raise build_order_error(
                place, f"the tool name {block.get('name')!r}; letters, digits, `_` and `-` are taken"
            )
        case "tool_result" if block.get("is_error") and not block.get("content"):
            raise build_order_error(place, f"the result {block.get('tool_use_id')!r} is an error without content")
        case "thinking" | "redacted_thinking" if "cache_control" in block:
            raise build_order_error(place, "a thinking block has a cache marker; mark another block")
        case None | "":
            raise build_order_error(place, f"a block without a type: {sorted(block)}")
        case _:
            pass


def _check_own_block(place: int, block: Mapping[str, Any]) -> None:
    """Check a block for Anthropic itself, which is stricter about ids than compatible servers."""
    if block.get("type") == "tool_use" and not is_call_id(str(block.get("id", ""))):
        raise build_order_error(place, f"the call id {block.get('id')!r}; letters, digits, `_` and `-` are taken")
    _check_block(place, block)


@cache
def get_message_rules(*, signed: bool, is_continuation: bool = False) -> MessageOrderChecker:
    """Return the rules for the messages of a request: Anthropic's own if `signed`, else those of compatible servers.

    `is_continuation`: the conversation gets an opening message put before it.
    """
    return MessageOrderChecker(
        _read_item, _check_own_block if signed else _check_block, is_continuation=is_continuation
    )


# -- a whole body ------------------------------------------------------------------------------------------------------


def lint(body: Mapping[str, Any], profile: Profile) -> list[str]:
    """Return a sentence for each rule of the Messages API that a request body breaks."""
    signed = get_model_features(profile.dialect, profile.model).signed
    checks = (
        _lint_ids,
        _lint_settings,
        _lint_tools,
        _lint_tool_choice,
        _lint_thinking,
        _lint_cache_markers,
    )
    return [*_lint_messages(body, signed=signed), *[problem for check in checks for problem in check(body)]]


def _lint_messages(body: Mapping[str, Any], *, signed: bool) -> Iterator[str]:
    items = as_dicts(body.get("messages"))
    rules = get_message_rules(signed=signed)
    state = rules.begin()
    try:
        for item in items:
            state = rules.step(state, item)
        rules.end(state)
    except ProviderRuleError as broken:
        yield str(broken)
        return
    last = get_content_blocks(items[-1])[-1]
    if items[-1]["role"] == "assistant" and last.get("type") == "text" and last["text"] != last["text"].rstrip():
        yield "the last message is the model's and ends in blanks"


def _iterate_blocks(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for item in as_dicts(body.get("messages")):
        yield from get_content_blocks(item)


def _lint_ids(body: Mapping[str, Any]) -> Iterator[str]:
    ids = [block.get("id") for block in _iterate_blocks(body) if block.get("type") == "tool_use"]
    for repeated in sorted({str(each) for each in ids if ids.count(each) > 1}):
        yield f"the call id {repeated!r} is used more than once"
    if ids and not body.get("tools"):
        yield "there are calls in the conversation and no tools beside it"


def _lint_settings(body: Mapping[str, Any]) -> Iterator[str]:
    if not body.get("model") and not body.get("anthropic_version"):  # at other hosts the URL names the model
        yield "no model is named"
    most = body.get("max_tokens")
    if type(most) is not int or most < 1:
        yield f"max_tokens={most!r}: give a number of tokens, at least 1"
    if not 0 <= body.get("temperature", 1) <= 1:
        yield f"temperature={body['temperature']!r}: from 0 to 1"
    for stop in body.get("stop_sequences") or ():
        if not str(stop).strip():
            yield "a stop sequence that is blank"
    for block in as_dicts(body.get("system")):
        if not str(block.get("text", "")).strip():
            yield "a block of the system prompt that is blank"


def _lint_tools(body: Mapping[str, Any]) -> Iterator[str]:
    names: set[str] = set()
    for tool in as_dicts(body.get("tools")):
        name = str(tool.get("name", ""))
        if "type" in tool and "name" not in tool:
            continue  # a set of tools that the provider runs
        if not _is_tool_name(name):
            yield f"the tool name {name!r}; letters, digits, `_` and `-` are taken"
        if name in names:
            yield f"two tools are named {name!r}"
        names.add(name)
        if tool.get("type", "custom") == "custom" and as_dict(tool.get("input_schema")).get("type") != "object":
            yield f"the schema of the tool {name!r} is not one of an object"


def _lint_tool_choice(body: Mapping[str, Any]) -> Iterator[str]:
    choice = as_dict(body.get("tool_choice"))
    if not choice:
        return
    kind = choice.get("type")
    if not body.get("tools"):
        yield "tool_choice without tools"
    elif kind not in {"auto", "any", "tool", "none"}:
        yield f"tool_choice of the type {kind!r}"
    elif kind == "tool" and choice.get("name") not in [tool.get("name") for tool in as_dicts(body.get("tools"))]:
        yield f"tool_choice names {choice.get('name')!r}, which is not among the tools"


def _lint_thinking(body: Mapping[str, Any]) -> Iterator[str]:
    thinking = as_dict(body.get("thinking"))
    if thinking.get("type") not in {"enabled", "adaptive"}:
        return
    budget = thinking.get("budget_tokens", MIN_THINKING_TOKENS)
    if budget < MIN_THINKING_TOKENS:
        yield f"budget_tokens={budget!r}: at least {MIN_THINKING_TOKENS}"
    if thinking["type"] == "enabled" and budget >= body.get("max_tokens", 0):
        yield f"budget_tokens={budget!r} leaves no room in max_tokens={body.get('max_tokens')!r}"
    if body.get("temperature", 1) != 1:
        yield f"temperature={body['temperature']!r} with thinking: leave it out"
    if body.get("top_p", 1) < _MIN_TOP_P:
        yield f"top_p={body['top_p']!r} with thinking: from {_MIN_TOP_P} on"
    if as_dict(body.get("tool_choice")).get("type") in {"any", "tool"}:
        yield "a call is forced on a model that thinks"


def _lint_cache_markers(body: Mapping[str, Any]) -> Iterator[str]:
    places = [*as_dicts(body.get("tools")), *as_dicts(body.get("system")), *_iterate_blocks(body)]
    marks = sum("cache_control" in block for block in places)
    if marks > MAX_CACHE_MARKERS:
        yield f"{marks} blocks have a cache marker; at most {MAX_CACHE_MARKERS} may have one"
