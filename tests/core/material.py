"""Values for hypothesis to draw: what a model, a person or a tool might put into messages and events."""

from typing import Any

from hypothesis import strategies as st

from windlass.core.event import EVENTS, Event, Unknown
from windlass.core.message import (
    Audio,
    Document,
    Image,
    Message,
    Status,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    Video,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
"""What UTF-8 can hold, control characters included."""
torn_texts = st.text(max_size=20)
"""Any string of Python: lone surrogates too, as they come out of broken streams."""

numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
jsons = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
"""What JSON keeps exactly."""
json_objects = st.dictionaries(texts, jsons, max_size=3)

tokens = st.integers(0, 2**53)
usages = st.builds(
    Usage, tokens, tokens, tokens, tokens, tokens, st.sampled_from(["exact", "estimated", "partial"])
)


def _media(kind: Any, **more: Any) -> st.SearchStrategy[Any]:
    return st.builds(kind, data=st.binary(max_size=20), url=texts, file_id=texts, media_type=texts, name=texts, **more)


said = st.builds(Text, texts, texts)
media = _media(Image, detail=texts) | _media(Audio) | _media(Video) | _media(Document)
thoughts = st.builds(Thinking, texts, texts, texts, texts, texts, json_objects)
calls = st.builds(ToolCall, texts, texts, texts, texts, texts)
results = st.builds(
    ToolResult,
    texts,
    texts,
    st.lists(said | media, max_size=2).map(tuple),
    st.sampled_from(Status),
    jsons,
    texts,
    st.booleans(),
)
parts = said | thoughts | media | calls | results
messages = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.lists(parts, max_size=3).map(tuple),
    origin=texts,
    provider=texts,
    model=texts,
    stop=st.none() | st.sampled_from(StopReason),
    usage=st.none() | usages,
    original_text=texts,
    metadata=json_objects,
)

_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "message": messages,
    "summary": messages,
    "partial": st.none() | messages,
    "result": results,
    "usage": usages,
    "options": json_objects,
    "settings": json_objects,
    "details": json_objects,
    "changes": json_objects,
    "calls": st.lists(json_objects, max_size=2).map(tuple),
    "data": jsons,
    "mode": st.sampled_from(["now", "after_tools", "after_turn"]),
    "action": texts,
    "scope": st.sampled_from(["once", "session", "session_target", "forever"]),
    "source": st.sampled_from(["user", "model", "code"]),
    "stop": st.none() | st.sampled_from(StopReason),
    "added": st.lists(texts, max_size=2).map(tuple),
    "removed": st.lists(texts, max_size=2).map(tuple),
    "after": st.none() | tokens,
    "cost_usd": st.none() | st.floats(0, 1e6),
}
_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    int: tokens,
    float: st.floats(0, 1e6),
    bool: st.booleans(),
}
_SPECIAL = {
    ("reply_finished", "message"): st.none() | messages,
    ("reply_finished", "usage"): st.none() | usages,
    ("error_raised", "message"): texts,
    ("retry_scheduled", "message"): texts,
    ("failed_over", "message"): texts,
    ("subagent_finished", "message"): texts,
    ("guardrail_tripped", "action"): st.sampled_from(["nudge", "halt"]),
    ("model_requested", "messages"): tokens,
}
"""Fields whose name means something else elsewhere."""


def _of_kind(kind: type[Event]) -> st.SearchStrategy[Event]:
    tag = str(kind.__struct_config__.tag)
    fields = {}
    for name in kind.__struct_fields__:
        strategy = _SPECIAL.get((tag, name))
        if strategy is None:
            strategy = _FIELDS.get(name)
        fields[name] = _BY_TYPE[_annotation(kind, name)] if strategy is None else strategy
    return st.builds(kind, **fields)


def _annotation(kind: type, name: str) -> Any:
    return next(each.__annotations__[name] for each in kind.__mro__ if name in each.__dict__.get("__annotations__", {}))


events = st.sampled_from(sorted(EVENTS)).map(EVENTS.__getitem__).filter(lambda kind: kind is not Unknown).flatmap(_of_kind)
"""An event of any kind that this version knows."""
