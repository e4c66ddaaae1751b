"""Entries as JSON: everything can be written, and what is written can be read."""

import enum
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Image, Message, StopReason, StoreError, Text, ToolResult, Usage, user
from perdure._core.log import codec
from perdure._core.log.codec import (
    MAX_BRACKETS_UNCHECKED,
    VERSION,
    decode_event,
    decode_events,
    encode_event,
    encode_events,
    encode_events_as_msgpack,
)
from perdure.events import (
    Custom,
    Entry,
    GuardrailTripped,
    MessageAdded,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolFinished,
    Unknown,
)
from perdure.stores import EntryTooNew, decode_entry, encode_entry
from tests.core.material import events, jsons, messages, texts, torn_texts


class Colour(enum.Enum):
    RED = "red"


class Rude:
    def __repr__(self):
        raise RuntimeError


class Slippery(dict):
    def __iter__(self):
        raise KeyError

    def items(self):
        raise KeyError


def nested(levels, kind=list):
    value: Any = None
    for _ in range(levels):
        value = [value] if kind is list else (value,) if kind is tuple else {"in": value}
    return value


def cycle():
    value: dict[str, Any] = {}
    value["me"] = [value]
    return value


hostile = st.one_of(
    jsons,
    torn_texts,
    st.floats(),
    st.integers(),
    st.binary(max_size=9),
    st.builds(Rude),
    st.builds(Slippery, st.just({"a": 1})),
    st.builds(cycle),
    st.builds(nested, st.sampled_from([MAX_BRACKETS_UNCHECKED, 3000, 30_000]), st.sampled_from([list, tuple, dict])),
    st.sampled_from(
        [Colour.RED, object, len, 1j, range(3), {1, 2}, {(1, 2): 3}, {"a": {1: 2}}, user("hi"), Text("\ud800")]
    ),
)
"""Whatever a careless or hostile extension may put where anything is allowed."""


# -- there and back ----------------------------------------------------------------------------------------------------


@given(events)
def test_every_event_is_read_back_as_it_was(event):
    assert decode_event(encode_event(event)) == event


@given(events, st.integers(0, 2**53), st.floats(0, 1e12), texts)
def test_every_entry_is_read_back_as_it_was(event, seq, at, name):
    entry = Entry(seq, at, event, name)
    assert decode_entry(encode_entry(entry)) == entry


@given(events)
def test_an_entry_is_one_line_of_json(event):
    line = encode_entry(Entry(1, 1.0, event))
    assert b"\n" not in line
    assert msgspec.json.decode(line)["event"]["kind"] == type(event).__struct_config__.tag


def test_an_entry_tells_whether_it_is_critical_and_leaves_out_what_goes_without_saying():
    assert encode_entry(Entry(7, 1.5, RunEnded("done", run_id="r"), "e")) == (
        b'{"seq":7,"at":1.5,"event":{"kind":"run_ended","status":"done","run_id":"r"},"id":"e","critical":true}'
    )
    assert encode_entry(Entry(7, 1.5, Custom("n"))) == b'{"seq":7,"at":1.5,"event":{"kind":"custom","name":"n"}}'


# -- what cannot be written as it is -----------------------------------------------------------------------------------


@given(st.sampled_from(["data", "metadata", "render", "options"]), hostile)
def test_no_content_can_make_writing_or_reading_fail(place, value):
    event = {
        "data": lambda: Custom("n", value),
        "metadata": lambda: MessageAdded(user([Image(data=b"\xff")], metadata={"it": value})),
        "render": lambda: ToolFinished("c", "t", ToolResult("c", "t", (Text("a"), Image(data=b"\x00")), render=value)),
        "options": lambda: RunStarted(options={"it": value}),
    }[place]()
    again = decode_event(encode_event(event))
    assert type(again) is type(event)
    assert encode_event(again) == encode_event(decode_event(encode_event(again)))


@given(torn_texts, messages)
def test_torn_text_is_written_with_a_mark_in_place_of_each_tear(text, message):
    torn = msgspec.structs.replace(message, parts=(Text(text), *message.parts), origin=text)
    again = decode_event(encode_event(MessageAdded(torn)))
    assert isinstance(again, MessageAdded)
    mended = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert (again.message.text.startswith(mended), again.message.origin) == (True, mended)
    assert again.message.parts[1:] == message.parts


def test_media_stay_what_they_are_when_something_beside_them_has_to_be_mended():
    image = Image(data=b"\xffPNG", media_type="image/png")
    message = Message("user", (image, Text("x")), stop=StopReason.STOP, usage=Usage(1, 2), metadata={"me": cycle()})
    again = decode_event(encode_event(MessageAdded(message)))
    assert isinstance(again, MessageAdded)
    assert again.message == msgspec.structs.replace(message, metadata={"me": {"me": ["<cycle>"]}})


@pytest.mark.parametrize("kind", [list, tuple, dict])
@pytest.mark.parametrize("levels", [MAX_BRACKETS_UNCHECKED + 1, 30_000])
def test_data_too_deep_to_be_read_back_is_cut(levels, kind):
    again = decode_event(encode_event(Custom("n", nested(levels, kind))))
    assert isinstance(again, Custom)
    assert "<cut: nested deeper than" in str(again.data)


def test_results_in_results_are_cut_too():
    result = ToolResult("c", "t")
    for _ in range(2000):
        result = ToolResult("c", "t", render=result)
    again = decode_event(encode_event(ToolFinished("c", "t", result)))
    assert "<cut: nested deeper than" in str(again)


def test_text_with_many_brackets_is_not_touched():
    event = MessageAdded(user("[{" * MAX_BRACKETS_UNCHECKED))
    assert decode_event(encode_event(event)) == event


def test_what_json_does_not_know_is_null_or_marked():
    assert decode_event(encode_event(Custom("n", math.nan))) == Custom("n", None)
    assert decode_event(encode_event(Custom("n", 1j))) == Custom("n", "<unserialisable builtins.complex: 1j>")


# -- kinds of another version ------------------------------------------------------------------------------------------


@given(st.dictionaries(texts, jsons, max_size=3))
def test_an_unknown_kind_is_kept_as_it_came(fields):
    body = {**fields, "kind": "telepathy"}
    event = decode_event(msgspec.json.encode(body))
    assert event == Unknown("telepathy", body, run_id=str(fields.get("run_id", "")), path=str(fields.get("path", "")))
    assert msgspec.json.decode(encode_event(event)) == body


def test_an_unknown_kind_still_tells_where_it_happened():
    event = decode_event(b'{"kind":"telepathy","run_id":"r1","path":"child"}')
    assert (event.run_id, event.path) == ("r1", "child")


def test_an_unknown_critical_kind_stops_the_reader_with_advice():
    with pytest.raises(EntryTooNew, match=r"kind 'telepathy', which this version does not know: upgrade perdure"):
        decode_entry(b'{"seq":1,"at":1.0,"event":{"kind":"telepathy"},"critical":true}')


@pytest.mark.parametrize("body", [None, {"a": 1}, {"kind": "other"}, [1], "text", "\ud800"])
def test_an_unknown_event_made_by_hand_can_be_read_back(body):
    again = decode_event(encode_event(Unknown("telepathy", body)))
    assert isinstance(again, Unknown)
    assert again.name == "telepathy"
    assert again.body == {"kind": "telepathy", "body": "\ufffd" if body == "\ud800" else body}


def test_an_event_that_calls_itself_unknown_is_unknown():
    assert decode_event(b'{"kind":"unknown","x":1}') == Unknown("unknown", {"kind": "unknown", "x": 1})


def test_a_field_that_is_not_known_yet_is_passed_over():
    raw = b'{"kind":"guardrail_tripped","guardrail":"repeat","count":3,"action":"nudge","mood":"grim"}'
    assert decode_event(raw) == GuardrailTripped("repeat", 3, "nudge")


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"{}", b'{"kind":5}', b'{"kind":"run_ended"}'])
def test_what_is_damaged_is_told_as_such(raw):
    with pytest.raises(msgspec.DecodeError):
        decode_event(raw)


# -- older and newer versions ------------------------------------------------------------------------------------------


@pytest.fixture
def at_version_three(monkeypatch):
    """As if two versions had passed, of which the first renamed a field and the second a kind."""
    monkeypatch.setattr(codec, "VERSION", 3)
    upcasters = {
        1: lambda body: {("name" if key == "title" else key): value for key, value in body.items()},
        2: lambda body: {**body, "kind": "custom" if body["kind"] == "special" else body["kind"]},
    }
    monkeypatch.setattr(codec, "UPCASTERS", upcasters)


@pytest.mark.usefixtures("at_version_three")
def test_an_entry_of_an_older_version_is_brought_up_step_by_step():
    assert decode_event(b'{"kind":"special","title":"n"}', version=1) == Custom("n")
    assert decode_event(b'{"kind":"special","name":"n"}', version=2) == Custom("n")
    assert decode_event(b'{"kind":"custom","name":"n"}', version=3) == Custom("n")


@pytest.mark.usefixtures("at_version_three")
def test_an_entry_without_a_version_is_of_the_first_one_also_in_later_versions():
    assert decode_entry(b'{"seq":1,"at":1.0,"event":{"kind":"special","title":"n"}}').event == Custom("n")
    assert msgspec.json.decode(encode_entry(Entry(1, 1.0, Custom("n"))))["v"] == 3


@pytest.mark.parametrize("version", [VERSION + 1, 0])
def test_an_entry_of_a_version_that_cannot_be_read_stops_the_reader_with_advice(version):
    message = rf"an entry of version {version}, and this is version {VERSION}: upgrade perdure"
    with pytest.raises(EntryTooNew, match=message):
        decode_event(b'{"kind":"custom","name":"n"}', version=version)


def test_an_event_that_nobody_could_read_again_is_refused_before_it_is_stored():
    wrong: Any = 7
    with pytest.raises(StoreError, match=r"'text_delta' cannot be stored.*fix its maker"):
        encode_event(TextDelta(wrong))


# -- many at once ------------------------------------------------------------------------------------------------------


@given(st.lists(events, max_size=5))
def test_events_that_are_written_together_are_read_back_as_they_were(several):
    written = encode_events(several)
    assert msgspec.json.decode(written) == [msgspec.json.decode(encode_event(event)) for event in several]
    assert decode_events(written) == several
    assert decode_events(encode_events_as_msgpack(several)) == several


@given(st.lists(jsons, max_size=5))
def test_whatever_data_was_read_can_be_packed(values):
    read = decode_events(encode_events([Custom("n", value) for value in values]))
    assert decode_events(encode_events_as_msgpack(read)) == read


def test_packed_events_are_smaller():
    several = [MessageAdded(user([Image(data=bytes(1000))]), run_id="r"), RunEnded("done", run_id="r")]
    assert len(encode_events_as_msgpack(several)) < len(encode_events(several)) * 0.9


def test_numbers_that_only_json_can_hold_are_kept_as_json():
    large = [Custom("n", 2**64), Custom("n", 1)]
    assert encode_events_as_msgpack(large) == encode_events(large)
    assert decode_events(encode_events_as_msgpack(large)) == large


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(Custom("n", {1, 2}), id="a value that is no JSON"),
        pytest.param(Custom("n", [[]] * (codec.MAX_BRACKETS_UNCHECKED + 1)), id="many brackets"),
        pytest.param(Custom("n", object()), id="an object"),
        pytest.param(Unknown("newer", {"kind": "newer", "value": 1}), id="an unknown kind"),
    ],
)
def test_events_that_are_encoded_together_are_the_same_bytes_as_one_by_one(odd):
    plain = [MessageAdded(user("hello")), Custom("n", math.nan)]
    for several in (plain, [*plain, odd], [odd]):
        assert encode_events(several) == b"[%b]" % b",".join(map(encode_event, several))


def test_an_event_that_could_not_be_read_back_is_refused_among_others():
    wrong: Any = 7
    with pytest.raises(StoreError, match="could not be read back"):
        encode_events([MessageAdded(user("hello")), Custom(wrong)])


@pytest.mark.parametrize("form", [encode_events, encode_events_as_msgpack])
def test_among_several_events_an_unknown_kind_is_kept_as_it_came(form):
    several = [Custom("n"), Unknown("telepathy", {"kind": "telepathy", "run_id": "r", "to": [1]}, run_id="r")]
    assert decode_events(form(several)) == several
    assert decode_events(form(several), critical=["custom"]) == several
    with pytest.raises(EntryTooNew, match=r"kind 'telepathy', which this version does not know"):
        decode_events(form(several), critical=["custom", "telepathy"])


@pytest.mark.usefixtures("at_version_three")
@pytest.mark.parametrize("form", [msgspec.json.encode, msgspec.msgpack.encode])
def test_several_events_of_an_older_version_are_brought_up(form):
    old = form([{"kind": "special", "title": "n"}, {"kind": "run_ended", "status": "done"}])
    assert decode_events(old, version=1) == [Custom("n"), RunEnded("done")]


DAMAGED = (b"", b"[", b"[{]", b'[{"kind":"run_ended"}]', b"[1]", b"\x00", b"\x91\x01", b"\x92\x80")


@pytest.mark.parametrize("raw", DAMAGED)
def test_damage_among_several_events_is_told_as_such(raw):
    with pytest.raises(msgspec.DecodeError):
        decode_events(raw)


@pytest.mark.usefixtures("at_version_three")
@pytest.mark.parametrize("form", [msgspec.json.encode, msgspec.msgpack.encode])
def test_events_of_an_older_version_are_brought_up_although_their_kinds_are_known(form: Any) -> None:
    old = form([{"kind": "custom", "name": "as it is now", "title": "as it was"}])
    assert decode_events(old, version=1) == [Custom("as it was")]
    assert decode_events(old, version=3) == [Custom("as it is now")]
    assert codec.decode_events_if_all_known(old, version=1) is None
    assert codec.decode_events_if_all_known(old, version=3) == [Custom("as it is now")]
    with pytest.raises(EntryTooNew, match="an entry of version 4, and this is version 3: upgrade perdure"):
        decode_events(old, version=4)
