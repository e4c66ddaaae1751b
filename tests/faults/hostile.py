"""What a confused or malicious model writes as arguments, and what a careless or malicious tool returns.

For `test_hostile_arguments.py`: lists of what is known to hurt, and strategies that find more.
"""

import asyncio
import datetime as dt
import decimal
import enum
import json
import math
import pathlib
import random
import types
import uuid
from collections import UserDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from perdure import Audio, Document, Image, Status, Text, ToolError, ToolOutput, ToolResult

DEEP = 10_000
"""Levels of nesting, and digits of a number: more than anybody means, and less than slows the test down."""

NASTY_TEXTS: Sequence[str] = (
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "\udfff and more",
    "\ud83d\ude00",
    "\ufeff",
    "\u202egnp.exe\u202c",
    "zero\u200bwidth\u200d\u2060",
    "".join(chr(0xE0000 + ord(letter)) for letter in "tags"),
    "\u2028\u2029\x85\x0b\x0c\r\n",
    "\x1b]0;title\x07\x1b[2J",
    "\U0010ffff\ufffe\uffff",
    "e" + "\u0301" * 200,
    "../../etc/passwd",
    "..",
    "~",
    "C:\\CON",
    "\\\\?\\C:\\",
    "file:///etc/shadow",
    "-rf",
    "--output=/dev/null",
    "$(reboot)`reboot`;reboot\nreboot",
    "{0.__class__}%s%n{{",
    "<script>alert(1)</script>",
    "NaN",
    "null",
    "\u0440\u0430\u0443\u0440\u0430l",
    "x" * 5_000,
)

NASTY_KEYS: Sequence[str] = (
    "number",
    "path",
    "Number",
    "numbr",
    "order",
    "place",
    "self",
    "context",
    "__proto__",
    "__class__",
    "__init__",
    "constructor",
    "",
    "\0",
    "\ud800",
    "a.b",
    "$ref",
    "type",
    "\u202e",
    "k" * 1_000,
)

RAW_ARGUMENTS: Sequence[str] = (
    "",
    "   ",
    "{}",
    "null",
    "true",
    "5",
    '"number"',
    "[]",
    '[{"number": 1}]',
    "{",
    "}",
    "{]",
    '{"number"}',
    '{"number": }',
    '{"number": 1,}',
    "{'number': 1}",
    "{number: 1}",
    '{"number": 1} {"number": 2}',
    '{"number": 1}x',
    '```json\n{"number": 1}\n```',
    '\ufeff{"number": 1, "path": "x"}',
    '{"number": 1, "number": 2, "path": "x"}',
    '{"path": "a", "deep": {"x": 1, "x": 2}, "number": 1}',
    '{"number": NaN, "path": "x"}',
    '{"number": Infinity, "path": "x"}',
    '{"number": -Infinity, "path": "x"}',
    '{"number": 1e999, "path": "x"}',
    '{"number": 1.0, "path": "x"}',
    '{"number": 1.5, "path": "x"}',
    '{"number": "5", "path": "x"}',
    '{"number": true, "path": "x"}',
    '{"number": null, "path": null}',
    '{"number": 01, "path": "x"}',
    '{"number": 9223372036854775808, "path": "x"}',
    f'{{"number": {"9" * DEEP}, "path": "x"}}',
    f'{{"number": -{"9" * DEEP}, "path": "x"}}',
    f'{{"number": 1e{"9" * 30}, "path": "x"}}',
    '{"number": 1, "path": "\\ud800"}',
    '{"number": 1, "path": "\\udfff\\ud800"}',
    '{"number": 1, "path": "\ud800"}',
    '{"number": 1, "path": "\\u0000"}',
    '{"number": 1, "path": "\0"}',
    '{"number": 1, "path": "\\q"}',
    '{"number": 1, "path": "a\nb"}',
    '{"number": 1, "path": "x", "more": 1}',
    '{"__proto__": {"number": 1}, "__class__": "x"}',
    '{"order": {"lines": [{"sku": 5}], "__class__": 1}}',
    '{"order": 5}',
    "[" * DEEP,
    "[" * DEEP + "]" * DEEP,
    '{"deep": ' * DEEP + "1" + "}" * DEEP,
    f'{{"number": 1, "path": "x", "deep": {"[" * DEEP}{"]" * DEEP}}}',
    '{"deep": {"a": ' + "[" * 90 + "]" * 90 + "}}",
    '{"place": -1}',
    '{"place": 1e3}',
    "\x00\x01\x02",
    "\ud800\udfff",
)

NAMES: Sequence[str] = (
    "count",
    "order",
    "strict",
    "anything",
    "hidden",
    "",
    "Count",
    "cuont",
    "count ",
    "__class__",
    "../count",
    "count\0",
    "\ud800",
    "\u202ecount",
    "n" * 500,
)
"""Tools that there are, and names that a model makes up; `hidden` is there, and not offered."""

CALL_IDS: Sequence[str] = ("", "same", "same", "ünï", "x" * 100, "a b", "\ud800", "call_1")


# -- arguments ---------------------------------------------------------------------------------------------------------

any_text = st.text(st.characters(exclude_categories=()), max_size=12)
words = st.sampled_from(NASTY_TEXTS) | any_text
keys = st.sampled_from(NASTY_KEYS) | any_text
numbers = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([2**63, -(2**63), 10**400, 1e308, -0.0, 5e-324])
json_values = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(keys, json_values, max_size=4)
plausible = st.fixed_dictionaries({}, optional={"number": json_values, "path": json_values, "deep": json_values})


def written(value: Any, *, escaped: bool) -> str:
    """A value as a model would write it."""
    return json.dumps(value, ensure_ascii=escaped)


valid_texts = st.builds(written, objects | plausible | json_values, escaped=st.booleans())
argument_texts = valid_texts | st.sampled_from(RAW_ARGUMENTS) | any_text
names = st.sampled_from(NAMES[:4]) | st.sampled_from(NAMES) | any_text


def mangled(text: str, chance: random.Random) -> str:
    """The text with something wrong with it, somewhere."""
    text = text[:2_000]  # what is long is there as it is
    here, there = sorted((chance.randint(0, len(text)), chance.randint(0, len(text))))
    garbage = chance.choice(NASTY_TEXTS)[:20] or chance.choice('{}[]",:\\0-eNI ')
    kind = chance.randrange(6)
    if kind == 0:
        return text[:there]
    if kind == 1:
        return text[:here] + garbage + text[here:]
    if kind == 2:
        return text[:here] + text[there:]
    if kind == 3:
        return text[:there] + text[here:]
    if kind == 4:
        arguments = {chance.choice(NASTY_KEYS): text, "number": here, "path": garbage}
        return written(arguments, escaped=chance.random() < 0.5)
    return text[:here] + json.dumps(garbage) + text[there:]


# -- results -----------------------------------------------------------------------------------------------------------


class Liar:
    """Nothing about it can be asked."""

    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __repr__
    __hash__ = None  # type: ignore[assignment] # nor any hash

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    def __bool__(self):
        raise RuntimeError("neither true nor false")

    def __len__(self):
        raise RuntimeError("no length")


class Mumbler:
    def __repr__(self):
        return "\ud800\0" * 1_000


class Quitter:
    def __repr__(self):
        raise SystemExit(3)


class EndlessList(list):
    def __iter__(self):
        while True:
            yield self


class EndlessDict(dict):
    def items(self):
        return EndlessList().__iter__()

    def __iter__(self):
        while True:
            yield object()


class BrokenMapping(UserDict):
    def __getitem__(self, key):
        raise KeyError(key)

    def __iter__(self):
        return iter(["a", 5, None])


class Word(str):
    __slots__ = ()

    def __str__(self):
        raise ValueError("no words")

    def __len__(self):
        raise ValueError("no length")


class Number(int):
    def __repr__(self):
        return "not a number"

    __str__ = __repr__


class Colour(enum.Enum):
    RED = object()
    SAD = "\ud800"


@dataclass
class Node:
    name: str = "\ud800"
    children: list = field(default_factory=list)


class Sealed(msgspec.Struct):
    secret: Any = None


class Rude(Exception):
    def __str__(self):
        raise RuntimeError("cannot be shown")

    __repr__ = __str__


class Vague(Exception):
    def __str__(self):
        return 5  # noqa: PLE0307 - that is what is wrong with it


class Wordy(ToolError):
    def __str__(self):
        return "\ud800\0" * 1_000


def _cycle() -> list:
    loop: list = []
    loop.append({"again": loop})
    return loop


def _tower(wrap: Callable[[Any], Any], height: int = DEEP) -> Any:
    value: Any = "bottom"
    for _ in range(height):
        value = wrap(value)
    return value


def _node_cycle() -> Node:
    node = Node()
    node.children.append(node)
    return node


def _numbers() -> Iterator[int]:
    yield 1


HOSTILE_VALUES: Sequence[Callable[[], Any]] = (
    lambda: None,
    lambda: ...,
    lambda: NotImplemented,
    lambda: "",
    lambda: "\ud800\0",
    lambda: "x" * 100_000,
    lambda: b"\xff\xfe\x00",
    lambda: bytearray(b"ok"),
    lambda: memoryview(b"\xff"),
    lambda: math.nan,
    lambda: [math.inf, -math.inf, -0.0, 5e-324],
    lambda: 2**63,
    lambda: [10**400, -(10**5_000)],
    lambda: 1j,
    lambda: decimal.Decimal("NaN"),
    lambda: decimal.Decimal("sNaN"),
    lambda: [dt.datetime.max, dt.date.min, dt.timedelta.max, dt.time()],  # noqa: DTZ901 - without a zone, as they come
    lambda: uuid.UUID(int=0),
    lambda: pathlib.PurePath("a\ud800"),
    lambda: {1: 1, "1": 2, None: 3, 2.5: 4, False: 5, (1, 2): 6, b"\xff": 7},
    lambda: {"\ud800": {"\0": "\ud800"}},
    lambda: {float("nan"): 1},
    lambda: {1, "1", None, (2, 3)},
    lambda: frozenset([frozenset()]),
    lambda: deque([1, 2]),
    lambda: range(3),
    _cycle,
    lambda: _tower(lambda value: [value]),
    lambda: _tower(lambda value: {"k": value}),
    lambda: _tower(lambda value: (value, value), 7),
    lambda: _tower(lambda value: Node(children=[value]), 200),
    _node_cycle,
    Liar,
    lambda: [Liar(), Mumbler(), Quitter()],
    Mumbler,
    Quitter,
    lambda: EndlessList([1, 2]),
    lambda: EndlessDict(a=1),
    BrokenMapping,
    lambda: Word("word"),
    lambda: Number(5),
    lambda: Colour.RED,
    lambda: [Colour.SAD],
    Node,
    lambda: Sealed(Liar()),
    lambda: Sealed("\ud800"),
    lambda: msgspec.Raw(b"{not json"),
    object,
    lambda: object,
    lambda: len,
    lambda: lambda: 1,
    lambda: types,
    _numbers,
    lambda: types.SimpleNamespace(a=1),
    lambda: ValueError("returned, not raised"),
    lambda: Rude("returned"),
    lambda: Text("\ud800"),
    lambda: [Text("\ud800"), Text("b")],
    lambda: [Text("a"), "b"],
    lambda: [Image(data=b"\xff"), Audio(url="\ud800"), Document(name="\ud800\0", media_type="\ud800")],
    lambda: ToolOutput(_cycle(), render=Liar(), summary="\ud800"),
    lambda: ToolOutput(render=_tower(lambda value: [value])),
    lambda: ToolOutput([Text("\ud800")], render={1: math.nan}, is_error=True),
    lambda: ToolOutput("text", summary=5),  # type: ignore[arg-type] # that is what is wrong with it
    lambda: ToolResult("other", "name", (Text("\ud800"),), render=_cycle(), summary="\ud800"),
    lambda: ToolResult("", "", (), Status.UNKNOWN, render=Liar()),
    lambda: ToolResult("", "", "words"),  # type: ignore[arg-type] # as above
    lambda: ToolResult("", "", (Text("a"),), "splendid"),  # type: ignore[arg-type] # as above
    lambda: ToolResult("", "", (5,), summary=None),  # type: ignore[arg-type] # as above
)
"""What a tool returns; made anew for each call."""

HOSTILE_ERRORS: Sequence[Callable[[], BaseException]] = (
    ValueError,
    lambda: ValueError("\ud800\0"),
    lambda: ValueError(Liar()),
    lambda: ValueError("x" * 100_000),
    lambda: Rude("cannot be shown"),
    lambda: Vague("says a number"),
    Wordy,
    lambda: ToolError(""),
    lambda: SystemExit(3),
    KeyboardInterrupt,
    GeneratorExit,
    StopIteration,
    StopAsyncIteration,
    asyncio.CancelledError,
    RecursionError,
    MemoryError,
    lambda: ExceptionGroup("several", [ValueError("\ud800"), Rude("one"), ExceptionGroup("more", [KeyError(1)])]),
    lambda: BaseExceptionGroup("several", [KeyboardInterrupt(), SystemExit(1), asyncio.CancelledError()]),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
)
"""What a tool raises."""

ENDLESS = (lambda: range(10**12), lambda: ["x"] * 1_000_000)
"""Values that are cut, which takes as long as a million values take."""

result_values = st.sampled_from([*HOSTILE_VALUES, *HOSTILE_ERRORS]) | json_values.map(lambda value: lambda: value)


def nested(make: Callable[[], Any], chance: random.Random) -> Callable[[], Any]:
    """The value inside other values; what is raised stays as it is."""
    other, key, kind = chance.choice(HOSTILE_VALUES), chance.choice(NASTY_KEYS), chance.randrange(8)

    def wrapped() -> Any:
        value = make()
        if isinstance(value, BaseException):
            return value
        return (
            lambda: [value, other()],
            lambda: {key: value, "other": other()},
            lambda: (value, {1: other(), None: value}),
            lambda: Node(key, [value, other()]),
            lambda: Sealed({key: [value]}),
            lambda: ToolOutput(value, render=other(), summary=key),
            lambda: ToolOutput([other()], render={key: value}, is_error=True),
            lambda: ToolResult(key, key, (Text(key),), render=[value, other()], summary=key),
        )[kind]()

    return wrapped
