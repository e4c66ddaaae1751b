"""Values for hypothesis to draw: what a model, a person or a tool might put into messages and events."""

import collections.abc
import typing
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from perdure import (
    Audio,
    Citation,
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
from perdure._core.values.engine_event import PlannedTask
from perdure.events import EVENTS, Event, Unknown
from perdure.permissions import ApprovalBinding

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
"""What UTF-8 can hold, control characters included."""
torn_texts = st.text(max_size=20)
"""Any string of Python: lone surrogates too, as they come out of broken streams."""

numbers = st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
jsons = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
"""What JSON keeps exactly."""
json_objects = st.dictionaries(texts, jsons, max_size=3)

tokens = st.integers(0, 2**53)
_precisions = st.sampled_from(["exact", "estimated", "partial"])
usages = st.builds(Usage, tokens, tokens, tokens, tokens, tokens, _precisions, st.none() | st.floats(0, 1e6))


def _media(kind: Any, **more: Any) -> st.SearchStrategy[Any]:
    return st.builds(kind, data=st.binary(max_size=20), url=texts, file_id=texts, media_type=texts, name=texts, **more)


said = st.builds(Text, texts, texts)
media = _media(Image, detail=texts) | _media(Audio) | _media(Video) | _media(Document)
thoughts = st.builds(Thinking, texts, texts, texts, texts, texts, json_objects)
citations = st.builds(Citation, texts, texts, texts, st.none() | tokens, st.none() | tokens, json_objects)
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
parts = said | thoughts | media | citations | calls | results
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

_OF_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    Any: jsons,
    ApprovalBinding: st.builds(ApprovalBinding, texts, texts, texts, texts, texts),
    bool: st.booleans(),
    Citation: citations,
    float: st.floats(0, 1e6),
    int: tokens,
    Message: messages,
    NoneType: st.none(),
    PlannedTask: st.builds(PlannedTask, texts, texts, st.lists(texts, max_size=3).map(tuple)),
    StopReason: st.sampled_from(StopReason),
    str: texts,
    ToolResult: results,
    Usage: usages,
}


def _values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field, by its type."""
    arguments = get_args(hint)
    match get_origin(hint):
        case None:
            return _OF_TYPE[hint]
        case typing.Literal:
            return st.sampled_from(arguments)
        case collections.abc.Mapping:
            return json_objects
        case origin if origin is tuple:
            return st.lists(_values(arguments[0]), max_size=2).map(tuple)
        case _:
            return st.one_of([_values(each) for each in arguments])


def _events_of(kind: type[Event]) -> st.SearchStrategy[Event]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: _values(hints[name]) for name in kind.__struct_fields__})


events = st.one_of([_events_of(kind) for kind in EVENTS.values() if kind is not Unknown])
"""An event of any kind that this version knows."""
