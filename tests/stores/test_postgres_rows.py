"""Log entries as rows of a PostgreSQL table: each column, and what is sent for many rows at once."""

from typing import Any

import msgspec
import pytest

from perdure import ConfigError, StoreError, assistant, user
from perdure._core.log.codec import VERSION, encode_event
from perdure._stores.postgres.rows import EntryRow, decode_row, encode_row, encode_rows, has_consecutive_numbers
from perdure.events import (
    Custom,
    Entry,
    Event,
    MessageAdded,
    RunEnded,
    RunStarted,
    RunWaiting,
    SessionConfigured,
    Unknown,
)

NOTHING = (None, None, None, None, None)


@pytest.mark.parametrize(
    ("event", "kind", "columns"),
    [
        (Custom("x"), "custom", NOTHING),
        (MessageAdded(user("Hello, You!")), "message_added", ("Hello, You!", "user", "hello you", None, None)),
        (MessageAdded(assistant("Hello!")), "message_added", (None, "assistant", "hello", None, None)),
        (SessionConfigured({"title": "Named"}), "session_configured", ("Named", None, None, None, None)),
        (RunStarted("a", run_id="r"), "run_started", (None, None, None, 1, None)),
        (RunWaiting(("q",), 9.0, run_id="r"), "run_waiting", (None, None, None, 2, 9.0)),
        (RunEnded("done", run_id="r"), "run_ended", (None, None, None, 0, None)),
        (Unknown("odd\0\ud800", {"kind": "odd"}), "odd\ufffd?", NOTHING),
    ],
)
def test_a_row_has_what_the_database_looks_for_and_the_event_as_it_is(
    event: Event, kind: str, columns: tuple[Any, ...]
) -> None:
    critical = type(event).critical
    row = encode_row(Entry(3, 1.5, event, "e-3"))
    assert row == EntryRow._make((3, "e-3", kind, critical, 1.5, *columns, encode_event(event)))
    assert encode_row(Entry(3, 1.5, event, "")).id is None
    if not isinstance(event, Unknown):
        assert decode_row("s", (3, 1.5, "e-3", critical, VERSION, row.body)) == Entry(3, 1.5, event, "e-3")


@pytest.mark.parametrize("entry_id", ["a\0b", "\ud800"])
def test_an_id_that_no_column_can_hold_is_refused(entry_id: str) -> None:
    with pytest.raises(ConfigError, match=r"^the id of an entry must be text that UTF-8 can encode, without NUL"):
        encode_row(Entry(1, 1.0, Custom("x"), entry_id))
    assert encode_row(Entry(1, 1.0, Custom("x"), "größe")).id == "größe"


def test_many_rows_are_sent_as_their_columns_and_one_text_of_all_bodies() -> None:
    rows = [encode_row(Entry(seq, 1.0, MessageAdded(user("x" * seq)), f"e-{seq}")) for seq in (1, 2, 3)]
    columns, bodies = encode_rows(rows)
    assert bodies == b"".join(row.body for row in rows)
    sent = msgspec.json.decode(columns)
    for row, outline in zip(rows, sent, strict=True):
        start, length = outline.pop("start"), outline.pop("length")
        assert bodies[start - 1 :][:length] == row.body
        assert outline == {name: value for name, value in row._asdict().items() if name != "body"}


def test_a_row_that_cannot_be_decoded_is_told_by_its_number() -> None:
    with pytest.raises(StoreError) as damaged:
        decode_row("s", (3, 1.5, "e-3", False, VERSION, b"{"))
    text = "entry 3 of session 's' is damaged (Input data was truncated): restore a backup, or delete the session"
    assert str(damaged.value) == text


@pytest.mark.parametrize(("numbers", "fit"), [([4], True), ([4, 5, 6], True), ([4, 6], False), ([4, 4], False)])
def test_rows_are_numbered_one_by_one(numbers: list[int], fit: bool) -> None:
    assert has_consecutive_numbers([encode_row(Entry(seq, 1.0, Custom("x"), "")) for seq in numbers]) is fit
