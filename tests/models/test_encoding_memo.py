"""Nothing of a conversation is encoded or checked twice, and what comes out is the same as if it were."""

import threading
from collections.abc import Hashable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Message, user
from perdure._core.model.transcript import MessagesSnapshot
from perdure._models.endpoint.memo import Item, ProviderRuleError, encode_lossy_json
from perdure.models import EncodingMemo


class Counting:
    """Encodes by text, and counts how often; a rule that no two items in a row say the same."""

    def __init__(self) -> None:
        self.seen = 0

    def items_of(self, message: Message) -> Sequence[Item]:
        self.seen += 1
        return [{"text": word} for word in message.text.split()]

    def begin(self) -> Any:
        return None

    def step(self, state: Any, item: Item) -> Any:
        if state == item["text"]:
            raise ProviderRuleError(f"{state!r} stands there twice")
        return item["text"]

    def end(self, state: Any) -> None:
        if state == "unfinished":
            raise ProviderRuleError("it must not end like this")

    def pieces(self, memo: EncodingMemo, name: Hashable | None, messages: Sequence[Message]) -> list[bytes]:
        return memo.encode_messages(name, messages, self.items_of, self)


def said(*texts: str) -> list[Message]:
    return [user(text) for text in texts]


def test_a_message_is_encoded_once_while_its_conversation_grows():
    memo, wire, messages = EncodingMemo(), Counting(), said("one two", "three")
    assert wire.pieces(memo, "s", messages) == [b'{"text":"one"},{"text":"two"}', b'{"text":"three"}']
    messages += said("four")
    assert wire.pieces(memo, "s", messages)[2:] == [b'{"text":"four"}']
    assert wire.pieces(memo, "s", messages)[2:] == [b'{"text":"four"}']
    assert wire.seen == 3


def test_from_the_first_message_that_is_another_one_all_is_encoded_again():
    memo, wire, messages = EncodingMemo(), Counting(), said("a", "b", "c", "d")
    wire.pieces(memo, "s", messages)
    changed = [messages[0], user("b"), *messages[2:]]  # it says the same, but nobody has checked that
    assert wire.pieces(memo, "s", changed) == wire.pieces(EncodingMemo(), None, changed)
    assert wire.seen == 4 + 3 + 4


def test_a_shorter_conversation_is_a_part_of_a_longer_one():
    memo, wire, messages = EncodingMemo(), Counting(), said("a", "b", "c")
    wire.pieces(memo, "s", messages)
    assert wire.pieces(memo, "s", messages[:2]) == [b'{"text":"a"}', b'{"text":"b"}']
    assert wire.seen == 3


def test_nothing_is_kept_without_a_name():
    memo, wire, messages = EncodingMemo(), Counting(), said("a", "b")
    wire.pieces(memo, None, messages)
    wire.pieces(memo, None, messages)
    assert wire.seen == 4


def test_a_message_that_says_nothing_on_this_wire_has_no_piece():
    assert Counting().pieces(EncodingMemo(), "s", said("a", "  ", "b")) == [b'{"text":"a"}', b'{"text":"b"}']


def test_rules_go_on_where_they_stood():
    memo, wire, messages = EncodingMemo(), Counting(), said("a", "b")
    wire.pieces(memo, "s", messages)
    with pytest.raises(ProviderRuleError, match="'b' stands there twice"):
        wire.pieces(memo, "s", [*messages, user("b")])
    assert wire.pieces(memo, "s", [*messages, user("c")])[2:] == [b'{"text":"c"}']


def test_rules_about_the_end_are_asked_every_time():
    memo, wire, messages = EncodingMemo(), Counting(), said("a", "unfinished")
    for _ in range(2):
        with pytest.raises(ProviderRuleError, match="must not end"):
            wire.pieces(memo, "s", messages)
    assert len(wire.pieces(memo, "s", [*messages, user("done")])) == 3


def test_the_conversation_that_was_not_used_for_longest_is_forgotten_first():
    memo, wire = EncodingMemo(most_bytes=2_000), Counting()
    talks = {name: said(name * 300) for name in "abc"}
    for name in ["a", "b", "c", "a", "d", "a"]:
        wire.pieces(memo, name, talks.setdefault(name, said(name * 300)))
    wire.seen = 0
    wire.pieces(memo, "a", talks["a"])
    assert wire.seen == 0
    wire.pieces(memo, "b", talks["b"])
    assert wire.seen == 1


def test_a_conversation_that_is_too_large_is_not_kept_and_still_encoded():
    memo, wire, messages = EncodingMemo(most_bytes=100), Counting(), said("x" * 500)
    assert wire.pieces(memo, "s", messages) == wire.pieces(memo, "s", messages)
    assert wire.seen == 2
    assert memo._size == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"), st.integers(0, 4), st.lists(st.sampled_from(["x", "yy", "z w", ""]), max_size=3)
        ),
        max_size=12,
    ),
    st.integers(0, 3_000),
)
def test_what_comes_out_never_depends_on_what_was_asked_before(steps, most_bytes):
    memo, wire = EncodingMemo(most_bytes), Counting()
    talks: dict[str, list[Message]] = {"a": [], "b": []}
    for name, kept, more in steps:
        talks[name] = talks[name][:kept] + said(*more)
        try:
            fresh: object = wire.pieces(EncodingMemo(), None, talks[name])
        except ProviderRuleError as error:
            fresh = str(error)
        try:
            remembered: object = wire.pieces(memo, name, talks[name])
        except ProviderRuleError as error:
            remembered = str(error)
        assert remembered == fresh
        assert memo._size == sum(each.size for each in memo._kept.values()) <= most_bytes


def test_several_threads_may_ask_at_once():
    memo, messages = EncodingMemo(most_bytes=20_000), said(*[f"word{number}" for number in range(40)])
    wrong: list[object] = []

    def ask(name: str) -> None:
        wire = Counting()
        for length in list(range(1, 41)) * 5:
            pieces = wire.pieces(memo, name, messages[:length])
            if pieces != [b'{"text":"word%d"}' % number for number in range(length)]:
                wrong.append(pieces)

    threads = [threading.Thread(target=ask, args=(name,)) for name in "aabb"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []
    assert memo._size == sum(each.size for each in memo._kept.values())


def test_what_json_cannot_hold_is_made_into_what_it_can():
    assert encode_lossy_json({"a": 1}) == b'{"a":1}'
    assert encode_lossy_json({"half": "\ud83d"}).startswith(b'{"half":')
    assert encode_lossy_json({"odd": {1, 2}}).startswith(b'{"odd":')


def test_a_transcript_that_only_grows_is_not_looked_through_again():
    memo, wire, transcript = EncodingMemo(), Counting(), said("one", "two")
    assert wire.pieces(memo, "s", MessagesSnapshot(transcript)) == [b'{"text":"one"}', b'{"text":"two"}']
    transcript += said("three")
    assert wire.pieces(memo, "s", MessagesSnapshot(transcript))[2:] == [b'{"text":"three"}']
    assert wire.seen == 3
    for other in (
        MessagesSnapshot(said("else", "two")),
        [*transcript, user("passing")],
        MessagesSnapshot(transcript[:1]),
        MessagesSnapshot(transcript),
    ):
        assert wire.pieces(memo, "s", other) == wire.pieces(EncodingMemo(), None, other)


def test_other_fields_are_known_again_by_the_very_objects_that_they_were_made_from():
    memo, sources = EncodingMemo(), (["a"], None, "b")
    assert memo.find_fields(sources) is None
    memo.keep_fields(sources, b"{}")
    assert memo.find_fields(sources) == b"{}"
    assert memo.find_fields((["a"], None, "b")) is None
    assert memo.find_fields(sources[:2]) is None
    memo.keep_fields(sources[:2], b"[]")
    assert memo.find_fields(sources) is None


def test_what_a_conversation_has_lost_takes_no_room_any_more():
    memo, wire, other = EncodingMemo(most_bytes=2_500), Counting(), said("other")
    wire.pieces(memo, "other", other)
    for number in range(20):
        wire.pieces(memo, "s", [*said("a"), user(f"{number}x" * 200)])
    wire.seen = 0
    wire.pieces(memo, "other", other)
    assert wire.seen == 0


def test_messages_of_one_request_alone_are_forgotten_and_the_transcript_before_them_is_not():
    memo, wire, messages = EncodingMemo(), Counting(), said("a", "b")
    for passing, turn in (("now", "c"), ("then", "d"), ("", "e")):
        view = MessagesSnapshot(messages).with_passing(*said(passing)[: len(passing)])
        assert wire.pieces(memo, "s", view) == wire.pieces(EncodingMemo(), None, list(view))
        messages += said(turn)
    wire.seen = 0
    wire.pieces(memo, "s", MessagesSnapshot(messages).with_passing(user("last")))
    assert wire.seen == 2  # the new message of the transcript, and that of this request
