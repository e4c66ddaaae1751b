"""Whatever a tool returns can be stored, and reads as one would expect."""

import array
import collections
import contextlib
import dataclasses
import enum
import math
import os
import types
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure._core.values import jsonable as plain
from perdure._core.values.jsonable import MAX_ERROR_CHARACTERS, error_message, replace_surrogates, short_repr, to_text
from perdure.tools import to_jsonable

# What JSON can hold exactly.
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Point(msgspec.Struct):
    x: int
    y: object = msgspec.UNSET


class Tagged(msgspec.Struct, tag="tagged", rename="camel"):
    some_name: int


class Row(msgspec.Struct, array_like=True, tag="row"):
    x: int


@dataclasses.dataclass
class Box:
    content: object


class Model(pydantic.BaseModel):
    when: date
    inner: "Model | None" = None


class Place(NamedTuple):
    x: int
    y: int


class Attrs:
    """As attrs marks its classes."""

    __attrs_attrs__ = (types.SimpleNamespace(name="x"),)
    x = 4


class Pair(collections.UserDict):
    pass


armed = False


@contextlib.contextmanager
def hostility():
    """Within it the objects below are hostile; outside they can be shown by whoever reports on tests."""
    global armed  # noqa: PLW0603 - it is about every such object
    armed = True
    try:
        yield
    finally:
        armed = False


class HostileRepr:
    def __repr__(self):
        if armed:
            raise SystemExit
        return "HostileRepr()"


class HostileEverything:
    def __getattribute__(self, name):
        if armed:
            raise RuntimeError(name)
        return super().__getattribute__(name)

    def __repr__(self):
        return 5 if armed else "HostileEverything()"

    def __str__(self):
        raise KeyError

    def __iter__(self):
        raise ValueError

    def __eq__(self, other):
        raise AssertionError

    __hash__ = None  # type: ignore[assignment]


class HostileMeta(type):
    def __getattribute__(cls, name):
        if armed:
            raise RuntimeError(name)
        return super().__getattribute__(name)

    def __hash__(cls):
        if armed:
            raise TypeError
        return 1


class OfHostileMeta(metaclass=HostileMeta):
    pass


class EndlessList(list):
    def __iter__(self):
        while True:
            yield 1

    def __len__(self):
        raise ValueError


class EndlessSequence(collections.abc.Sequence):
    def __getitem__(self, index):
        return 1

    def __len__(self):
        return 1


class BrokenMapping(collections.abc.Mapping):
    def __getitem__(self, key):
        raise RuntimeError

    def __iter__(self):
        yield "a"

    def __len__(self):
        return 1


class Lying(str):
    __slots__ = ()

    def __str__(self):
        raise ValueError

    def encode(self, *_):
        raise ValueError

    def isascii(self):
        raise ValueError


class LyingInt(int):
    def __le__(self, other):
        raise ValueError

    __ge__ = __lt__ = __gt__ = __le__


class NestsForEver:
    def tolist(self):
        return NestsForEver()


class NestingModel:
    def model_dump(self, mode):
        return {"again": NestingModel()}


class MutatesItself(dict):
    def items(self):
        raise ValueError


def deep(levels, make):
    value = 1
    for _ in range(levels):
        value = make(value)
    return value


def nasty_values():
    cycle: list = []
    cycle.append(cycle)
    loop: dict = {}
    loop["self"] = loop
    box = Box(None)
    box.content = box
    return [
        HostileRepr(),
        HostileEverything(),
        OfHostileMeta(),
        EndlessList([1]),
        BrokenMapping(),
        Lying("text\ud800"),
        LyingInt(2**70),
        NestsForEver(),
        NestingModel(),
        MutatesItself(a=1),
        cycle,
        loop,
        box,
        deep(100_000, lambda value: [value]),
        deep(5_000, lambda value: {"a": value}),
        float("nan"),
        float("inf"),
        -float("inf"),
        Decimal("sNaN"),
        2**63,
        -(2**64),
        10**5000,
        "\ud800",
        dict.fromkeys(["\udc00", "\udc01"], "\ud83d"),
        {float("nan"): 1, None: 2, (1, "\ud800"): 3, HostileRepr(): 4},
        b"\xff\xfe",
        memoryview(b"abc"),
        object(),
        HostileRepr,
        lambda: 1,
        iter([1]),
        Exception("\ud800"),
        timedelta.max,
        1 + 2j,
        "\x00",
        {1: "a", "1": "b"},
    ]


# By number, since what shows test cases looks at them, and these do not like to be looked at.
NASTY = nasty_values()
numbers = range(len(NASTY))

anything = st.recursive(
    json_values
    | st.sampled_from(numbers).map(lambda number: NASTY[number])
    | st.integers()
    | st.floats()
    | st.binary()
    | st.text(st.characters(codec=None, categories=["Cs", "Lu", "Cc", "So"])),
    lambda children: (
        st.lists(children, max_size=4)
        | st.tuples(children, children)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.floats() | st.none(), children, max_size=4)
        | st.builds(Box, children)
        | st.builds(Point, st.integers(), children)
    ),
    max_leaves=15,
)


def is_plain(value) -> bool:
    if isinstance(value, dict):
        return type(value) is dict and all(type(key) is str and is_plain(each) for key, each in value.items())
    if isinstance(value, list):
        return type(value) is list and all(map(is_plain, value))
    return value is None or type(value) in {str, bool, int} or (type(value) is float and math.isfinite(value))


def check_that_it_can_be_stored(value):
    with hostility():
        jsonable = to_jsonable(value)
        to_text(value).encode()
    assert is_plain(jsonable)
    assert msgspec.json.decode(msgspec.json.encode(jsonable)) == jsonable


@given(anything)
def test_anything_can_be_stored(value):
    check_that_it_can_be_stored(value)


@pytest.mark.faults
@pytest.mark.hypothesis
def test_very_many_values_can_be_stored():
    examples = 1_000_000 if os.environ.get("PERDURE_SEARCH") == "long" else 300
    settings(max_examples=examples, database=None)(given(anything)(check_that_it_can_be_stored))()


@pytest.mark.parametrize("number", numbers)
def test_each_nasty_value_can_be_stored(number):
    value = NASTY[number]
    check_that_it_can_be_stored(value)
    check_that_it_can_be_stored([value])
    check_that_it_can_be_stored({"key": (value,)})


@given(json_values)
@example({"a": [1, 2.5, True, None, "ø", {}]})
def test_what_json_can_hold_is_kept_exactly(value):
    assert to_jsonable(value) == value
    if not isinstance(value, str):
        assert msgspec.json.decode(to_text(value)) == value


@given(st.text())
def test_text_stays_as_it_is(text):
    assert to_text(text) is text
    assert replace_surrogates(text) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (2.5, "2.5"),
        ("", ""),
        ([], "[]"),
        ({"city": "Oslo", "days": (1, 2)}, '{"city":"Oslo","days":[1,2]}'),
        (float("nan"), "NaN"),
        ([float("inf"), -float("inf")], '["Infinity","-Infinity"]'),
        (2**63, "9223372036854775808"),
        ([-(2**63)], '["-9223372036854775808"]'),
        (Level.HIGH, "3"),
        (Colour.RED, "red"),
        (Point(1), '{"x":1}'),
        (Point(1, y=[None]), '{"x":1,"y":[null]}'),
        (Tagged(1), '{"type":"tagged","someName":1}'),
        (Row(1), '["row",1]'),
        (Box({3, 1, 2}), '{"content":[1,2,3]}'),
        (Model(when=date(2024, 5, 1), inner=Model(when=date.min)), None),
        (Attrs(), '{"x":4}'),
        (Pair({"a": 1}), '{"a":1}'),
        (types.MappingProxyType({"a": 1}), '{"a":1}'),
        (collections.OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        (Place(1, 2), "[1,2]"),
        (frozenset({"b", "a"}), '["a","b"]'),
        ({"b": 1, "a": 2}.keys(), '["b","a"]'),
        ({"b": 1}.values(), "[1]"),
        ({"b": 1}.items(), '[["b",1]]'),
        (collections.deque([1]), "[1]"),
        (range(3), "[0,1,2]"),
        (array.array("i", [1, 2]), "[1,2]"),
        (datetime(2024, 5, 1, 12, tzinfo=UTC), "2024-05-01T12:00:00+00:00"),
        (date(2024, 5, 1), "2024-05-01"),
        (time(12, 30), "12:30:00"),
        (timedelta(days=1), "P1D"),
        (Decimal("1.10"), "1.10"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("a/b"), "a/b"),
        (Path("x"), "x"),
        ("grüße".encode(), "grüße"),
        ([bytearray(b"a")], '["a"]'),
        (b"\xff", "data:;base64,/w=="),
        (msgspec.Raw(b'{"a":1}'), '{"a":1}'),
        ({1: "a", None: "b", False: "c", 2.5: "d"}, '{"1":"a","null":"b","false":"c","2.5":"d"}'),
        ({(1, "a"): 1, b"k": 2, Colour.RED: 3}, '{"[1,\\"a\\"]":1,"k":2,"red":3}'),
    ],
)
def test_a_value_reads_as_compact_json(value, text):
    expected = '{"when":"2024-05-01","inner":{"when":"0001-01-01","inner":null}}' if text is None else text
    assert to_text(value) == expected


def test_lone_surrogates_are_replaced_and_pairs_joined():
    assert to_text("a\ud800b") == "a�b"
    assert replace_surrogates("\ud83d\ude00 \udc00") == "😀 �"
    assert to_jsonable({"k\ud800": ["\udfff"]}) == {"k�": ["�"]}


def test_keys_that_are_the_same_as_text_are_all_kept():
    assert to_jsonable({1: "a", "1": "b", "1 (2)": "c"}) == {"1": "a", "1 (2)": "b", "1 (2) (3)": "c"}
    assert to_jsonable({"1 (3)": "a", 1: "b", "1": "c"}) == {"1 (3)": "a", "1": "b", "1 (4)": "c"}


def test_very_many_keys_that_are_the_same_as_text_take_no_longer():
    value = {chr(0xD800 + i // 2048) + chr(0xD800 + i % 2048): i for i in range(20_000)}
    assert sorted(to_jsonable(value).values()) == list(range(20_000))


def test_an_integer_too_long_for_decimal_digits_is_kept_exactly():
    assert int(to_jsonable(10**5000), 16) == 10**5000


def test_a_cycle_is_marked_where_it_closes():
    value: dict = {"name": "a"}
    value["children"] = [value]
    assert to_text(value) == '{"name":"a","children":["<cycle>"]}'


def test_the_same_object_twice_is_no_cycle():
    shared = [1]
    assert to_jsonable([shared, shared]) == [[1], [1]]


class Meters(float):
    """A number with a unit."""


def test_numbers_of_a_class_of_their_own_are_kept():
    assert to_jsonable([LyingInt(5), Meters(1.5), Meters("inf"), LyingInt(2**70), True]) == [
        5, 1.5, "Infinity", str(2**70), True,
    ]  # fmt: skip


def test_nesting_is_cut_and_marked_below_64_levels():
    assert to_jsonable(deep(64, lambda value: [value])) == deep(64, lambda value: [value])
    assert "<cut: nested deeper than 64 levels>" in to_text(deep(65, lambda value: [value]))


class Wrapped(msgspec.Struct):
    content: object


class WrappedInArray(msgspec.Struct, array_like=True):
    content: object


class Listed:
    """An array of a library."""

    def __init__(self, content):
        self.content = content

    def tolist(self):
        return self.content


class Modelled:
    """A model of a library."""

    def __init__(self, content: object) -> None:
        self.content = content

    def model_dump(self, mode: str) -> object:
        assert mode == "json"
        return self.content


@pytest.mark.parametrize(
    "make",
    [
        lambda value: (value,),
        lambda value: {"a": value},
        lambda value: collections.deque([value]),
        lambda value: types.MappingProxyType({"a": value}),
        lambda value: collections.OrderedDict(a=value),
        lambda value: frozenset([value]),
        lambda value: {"a": value}.values(),
        Box,
        Wrapped,
        WrappedInArray,
        Listed,
        Modelled,
    ],
)
def test_nesting_in_containers_of_every_kind_is_cut(make):
    assert "<cut" not in to_text(deep(64, make))
    assert "<cut: nested deeper than 64 levels>" in to_text(deep(65, make))


def test_a_key_is_one_level_below_its_mapping():
    assert "<cut" not in to_text(deep(63, lambda value: {(value,): 1} if value == 1 else [value]))
    assert to_jsonable({(1, 2): 3}) == {"[1,2]": 3}
    assert "<cut" in to_text(deep(63, lambda value: {((value,),): 1} if value == 1 else [value]))


@pytest.mark.parametrize("make", [lambda value: [value] * 10, lambda value: dict.fromkeys("abcdefghij", value)])
def test_a_value_that_unfolds_without_end_is_cut_and_marked(monkeypatch, make):
    monkeypatch.setattr(plain, "MAX_VALUES", 1_000)
    text = to_text(deep(60, make))
    assert "<cut: more than" in text
    assert len(text) < 200_000


def test_long_texts_count_for_more(monkeypatch):
    monkeypatch.setattr(plain, "MAX_VALUES", 1_000)
    text = "x" * 6_400
    assert to_jsonable([text] * 5) == [text] * 5
    assert len(to_jsonable([text] * 50)) < 15
    assert len(to_jsonable({f"{i}{text}": i for i in range(50)})) < 15
    assert to_jsonable("x" * 100_000) == "x" * 100_000


def test_an_endless_sequence_is_cut(monkeypatch):
    monkeypatch.setattr(plain, "MAX_VALUES", 10)
    assert to_jsonable(EndlessSequence())[:3] == [1, 1, 1]
    assert to_jsonable(EndlessList([7])) == [7]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (HostileRepr, "<HostileRepr whose repr fails>"),
        (HostileEverything, "<HostileEverything whose repr fails>"),
        (BrokenMapping, "<unserialisable "),
        (object, "<unserialisable builtins.object: <object object at"),
        (lambda: ValueError("no\nway"), "<unserialisable builtins.ValueError: ValueError('no\\nway')>"),
        (lambda: 1 + 2j, "<unserialisable builtins.complex: (1+2j)>"),
    ],
)
def test_what_is_not_serialisable_is_marked(make, text):
    with hostility():
        marked = to_text(make()).replace(f"{__name__}.", "")
    assert marked.startswith("<unserialisable ")
    assert text in marked


def test_an_interrupt_from_the_keyboard_is_not_swallowed():
    class Interrupted:
        def __repr__(self):
            raise KeyboardInterrupt

        def tolist(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        to_jsonable(Interrupted())
    with pytest.raises(KeyboardInterrupt):
        short_repr(Interrupted())


@given(anything, st.integers(10, 100))
def test_an_excerpt_is_short_and_on_one_line(value, length):
    with hostility():
        text = short_repr(value, length)
    text.encode()
    assert len(text) <= length
    assert "\n" not in text


def test_an_excerpt_says_that_it_goes_on():
    assert short_repr("abc") == "'abc'"
    assert short_repr("x" * 10_000_000, 10) == "'xxxxxxxx…"
    assert short_repr([1] * 100, 10) == "[1, 1, 1,…"


def test_what_an_error_says_can_be_read_whatever_the_error_does():
    class Speechless(Exception):
        def __str__(self):
            raise SystemExit

    assert error_message(ValueError("no \ud800 way")) == "no � way"
    assert error_message(Speechless()) == "(no readable message)"


def test_a_very_long_message_of_an_error_is_cut_off():
    message = error_message(ValueError("x" * (MAX_ERROR_CHARACTERS + 1)))
    assert len(message) < MAX_ERROR_CHARACTERS + 20
    assert message.endswith("x… (cut off)")


@pytest.mark.parametrize(
    ("length", "text"), [(5, "'abc'"), (4, "'ab…"), (3, "'a…"), (2, "'…"), (1, "…"), (6, "'abc'"), (300, "'abc'")]
)
def test_an_excerpt_is_cut_only_if_it_is_too_long(length: int, text: str) -> None:
    assert short_repr("abc", length) == text


def test_an_excerpt_of_a_text_of_the_same_length_has_its_quotes_counted() -> None:
    assert short_repr("a\nb", 7) == "'a\\nb'"
    assert short_repr("é" * 4, 4) == "'éé…"
    assert short_repr("é" * 5, 4) == "'éé…"


def test_an_excerpt_of_several_lines_is_on_one() -> None:
    class Poem:
        def __repr__(self) -> str:
            return "one\ntwo \ud800"

    assert short_repr(Poem()) == "one two \ufffd"
    assert to_jsonable(Poem()).endswith("Poem: one two \ufffd>")


def test_the_message_of_an_error_is_whole_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "MAX_ERROR_CHARACTERS", 5)
    assert [error_message(ValueError(text)) for text in ("", "12345", "123456")] == ["", "12345", "12345… (cut off)"]


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (2**63 - 1, 2**63 - 1),
        (2**63, "9223372036854775808"),
        (-(2**63) + 1, -(2**63) + 1),
        (-(2**63), "-9223372036854775808"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (0.0, 0.0),
    ],
)
def test_numbers_that_json_readers_change_become_text(value: float, kept: object) -> None:
    assert (to_jsonable(value), to_jsonable([value])) == (kept, [kept])


def test_as_many_values_as_allowed_are_kept_and_the_rest_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "MAX_VALUES", 3)
    cut = "<cut: more than 1000000 values>"
    assert to_jsonable([1, 2, 3]) == [1, 2, 3]
    assert to_jsonable([1, 2, 3, 4]) == [1, 2, 3, 4, cut]
    assert to_jsonable([1, 2, 3, 4, 5]) == [1, 2, 3, 4, cut]
    assert to_jsonable({"a": 1, "b": 2, "c": 3}) == {"a": 1, "b": 2, "c": 3}
    assert to_jsonable(dict.fromkeys("abcde", 0)) == {"a": 0, "b": 0, "c": 0, "d": 0, "…": cut}
    assert to_jsonable([[1], 2]) == [[1], 2]
    assert to_jsonable([[1, 2], 3]) == [[1, 2], 3, cut]
    assert to_jsonable([[1, 2], [3, 4], [5]]) == [[1, 2], [3, 4, cut], cut]
    assert to_jsonable([[1, 2, 3], [4, 5]]) == [[1, 2, 3], [4, cut], cut]
    assert to_jsonable([[1, 2, 3], 4]) == [[1, 2, 3], 4, cut]
    assert to_jsonable({"a": [1, 2, 3], "b": 4}) == {"a": [1, 2, 3], "b": 4, "…": cut}
    assert to_jsonable([[1, 2, 3], {"a": 4, "b": 5}]) == [[1, 2, 3], {"a": 4, "…": cut}, cut]
    assert to_jsonable([[1, 2, 3, 4, 5], 6]) == [[1, 2, 3, 4, cut], cut]
    assert to_jsonable([{"a": 1, "b": 2, "c": 3, "d": 4}, 6]) == [{"a": 1, "b": 2, "c": 3, "d": 4, "…": cut}, cut]
    assert to_jsonable({"a": [1, 2, 3, 4, 5], "b": 6}) == {"a": [1, 2, 3, 4, cut], "…": cut}


def test_each_64_characters_of_text_and_of_keys_count_as_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "MAX_VALUES", 3)
    cut = "<cut: more than 1000000 values>"
    fits, long = "x" * 191, "x" * 192
    assert to_jsonable([fits]) == [fits]
    assert to_jsonable([long]) == [long, cut]
    assert to_jsonable(long + long) == long + long
    assert to_jsonable({"k" * 63: 1, "l" * 63: 2, "m" * 63: 3}) == {"k" * 63: 1, "l" * 63: 2, "m" * 63: 3}
    assert to_jsonable({"k" * 64: 1, "l" * 64: 2, "m" * 64: 3}) == {"k" * 64: 1, "l" * 64: 2, "m" * 64: 3, "…": cut}


def test_keys_that_clash_get_the_first_free_number() -> None:
    assert to_jsonable({"1": "a", 1: "b", "1 (2)": "c"}) == {"1": "a", "1 (2)": "b", "1 (2) (3)": "c"}
    assert to_jsonable({"1 (3)": "a", "1": "b", 1: "c"}) == {"1 (3)": "a", "1": "b", "1 (4)": "c"}


class TaggedPair(msgspec.Struct, array_like=True, tag="pair", rename="camel"):
    first_one: object
    second_one: object = msgspec.UNSET


class Named(msgspec.Struct, tag="named", tag_field="kind", rename="camel"):
    first_one: object
    second_one: object = msgspec.UNSET


def test_a_struct_has_its_tag_and_its_names_as_they_are_encoded() -> None:
    assert to_jsonable(Named(1)) == {"kind": "named", "firstOne": 1}
    assert to_jsonable(Named(1, None)) == {"kind": "named", "firstOne": 1, "secondOne": None}
    assert to_jsonable(TaggedPair(1, 2)) == ["pair", 1, 2]


def test_bytes_are_text_or_a_url_and_sets_have_an_order() -> None:
    assert to_jsonable([b"abc", bytearray(b"\xc3\xa9"), memoryview(b"\xff\x00")]) == ["abc", "é", "data:;base64,/wA="]
    assert to_jsonable({"b", "a", 3, 20}) == ["a", "b", 20, 3]
