"""Conversations for hypothesis to draw: they go from one model to another and back, and hold whatever may be in one.

Who speaks when is drawn choice by choice, so that a counterexample gets short; what is said is chosen at random from
one number, since drawing each word takes longer than all that is done with it.
"""

import base64
import random
from collections.abc import Iterator, Sequence

import hypothesis.strategies as st
import msgspec
from msgspec import Struct

from perdure import (
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
    Video,
    user,
)
from perdure._core.model.protocol import sanitize_reply
from perdure._core.values.jsonable import replace_surrogates
from perdure._core.values.message import Part
from perdure.models import ToolSpec, Wire
from tests.models.authors import AUTHORS, Author, Json, Reply

PRIVATE = "NEVER-SENT"
"""Stands in everything that no model is ever shown."""

TOOLS = (
    ToolSpec(
        "weather",
        "How it is somewhere",
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    ),
    ToolSpec("now", "", {"type": "object", "properties": {}}),
)


PNG = b"\x89PNG\r\n\x1a\n"
_PLAIN_TEXTS = ("Hello.", "How is it in Rome?", "words, more words")
_ODD_TEXTS = (
    "",
    " ",
    "\n\t",
    "\0nul\0",
    "lone \ud800 surrogate",
    "\U0001f600 é \u2028 \u200b \ufeff",
    '{"json": "inside"}',
    "</s><|im_end|>[INST]",
    "long " * 300,
)
_TEXTS = _PLAIN_TEXTS * 2 + _ODD_TEXTS

_NAMES = ("weather", "weather", "now", "functions.weather", "unknown tool é", "1st")
_CALL_IDS = ("call_1", "call_1", "k2", "", "functions.weather:0", "id with blanks é", "toolu_01" + "x" * 56, "y" * 300)
_ARGUMENTS = (
    '{"city":"Rome"}',
    '{"city": "R\\u00f6m", "deep": {"er": [1, 2.5, null]}}',
    "{}",
    "",
    "null",
    "{cut off",
    "[1]",
    '"text"',
    "lone \ud800",
    '{"a":1,"a":2}',
    "[" * 2_000,
)
_STATUSES = (Status.OK, Status.OK, *Status)


def _media(number: int) -> list[Image | Audio | Video | Document]:
    name = f"file-{number}"
    content = str(number).encode()
    encoded = base64.b64encode(PNG + content).decode()
    return [
        Image(PNG + content, media_type="image/png", name=f"{name}.png", detail="low"),
        Image(PNG + content, name=f"{name}.png"),
        Image(url=f"https://example.com/{name}.png", name=f"{name}.png"),
        Image(url=f"data:image/png;base64,{encoded}", name=f"{name}.png"),
        Image(b"GIF89a" + content, media_type="image/gif", name=f"{name}.gif"),
        Image(name=f"{name} of nothing"),
        Document(b"%PDF-1.7 " + content, media_type="application/pdf", name=f"{name}.pdf"),
        Document(b"plain " + name.encode(), media_type="text/plain", name=f"{name}.txt"),
        Document(b"\xff\xfe" + content, media_type="application/zip", name=f"{name}.zip"),
        Document(url=f"https://example.com/{name}.pdf", name=f"{name}.pdf"),
        Audio(b"RIFF...." + content, media_type="audio/wav", name=f"{name}.wav"),
        Video(b"...." + content, media_type="video/mp4", name=f"{name}.mp4"),
        Image(PNG, name=f"bad \udc80 {name}.png"),
    ]


class Pen:
    """Makes up the messages of one session, and numbers what has to be told apart."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.turns = 0
        self.files = 0
        self.taken: set[str] = set()
        """Ids of calls that are used."""
        self.written: dict[int, Written] = {}

    def text(self) -> str:
        return self.chance.choice(_TEXTS)

    def media(self) -> Image | Audio | Video | Document:
        self.files += 1
        return self.chance.choice(_media(self.files))

    def parts(self, most: int) -> list[Text | Image | Audio | Video | Document]:
        """Text and media as they come."""
        kinds = self.chance.choices("tttm", k=self.chance.randint(0, most))
        return [self.media() if kind == "m" else Text(self.text()) for kind in kinds]

    def question(self, origin: str = "") -> Message:
        parts: list[Part] = list(self.parts(3))
        return Message("user", tuple(parts), origin, metadata={"note": PRIVATE})

    def reply(self, author: Author, calls: int, thoughts: int) -> Message:
        """What this author says next, as the loop would keep it."""
        self.turns += 1
        choose = self.chance.choice
        called = [
            (
                replace_surrogates(choose(_CALL_IDS)),
                replace_surrogates(choose(_NAMES)),
                replace_surrogates(choose(_ARGUMENTS)),
            )
            for _ in range(calls)
        ]
        plan = Reply(
            self.turns, thoughts, replace_surrogates(self.text()), tuple(called), not calls and choose((True, False))
        )
        body = author.write(plan)
        message = sanitize_reply(author.read(body), self.taken)
        self.taken |= {call.call_id for call in message.tool_calls}
        message = msgspec.structs.replace(_with_arguments(message, called), metadata={"note": PRIVATE})
        self.written[self.turns] = Written(author, message, body)
        return message

    def results(self, reply: Message) -> Message:
        return Message("tool", tuple([self._result(call) for call in reply.tool_calls]))

    def _result(self, call: ToolCall) -> ToolResult:
        content, status = tuple(self.parts(2)), self.chance.choice(_STATUSES)
        return ToolResult(call.call_id, call.name, content, status, {"screen": PRIVATE}, f"{PRIVATE} {call.call_id}")

    def picture(self, author: Author) -> Message:
        """A picture that a model made."""
        parts = (Text(self.text()), self.media())
        return Message("assistant", parts, "", author.profile.provider, author.profile.model, StopReason.STOP)

    def scrap(self) -> Message:
        """What was left of a reply that was cancelled: nobody is named as its author."""
        self.turns += 1
        plan = Reply(self.turns)
        thinking = Thinking(plan.thought(1), plan.secret(1), plan.secret(2))
        return Message("assistant", (thinking, Text(self.text(), plan.secret(3))), stop=StopReason.CANCELLED)


def _with_arguments(message: Message, called: Sequence[tuple[str, str, str]]) -> Message:
    """Arguments as a stream may have told them, also where a whole answer cannot."""
    given = iter([arguments for _, _, arguments in called])
    parts = tuple([_with_text(part, given) if isinstance(part, ToolCall) else part for part in message.parts])
    return msgspec.structs.replace(message, parts=parts)


def _with_text(call: ToolCall, given: Iterator[str]) -> ToolCall:
    return msgspec.structs.replace(call, arguments=next(given))


class Written(Struct, frozen=True):
    """A reply, and how its provider wrote it."""

    author: Author
    message: Message
    body: Json


class Session(Struct, frozen=True):
    """A conversation that was begun by one author, went on with another, and came back."""

    first: Author
    second: Author
    begun: Sequence[Message]
    """What the first one was asked last, and everything before it; so the second can be asked the same."""
    moved: Sequence[Message]
    """What the second one is asked last."""
    back: Sequence[Message]
    """What the first one is asked in the end."""
    written: dict[int, Written]
    """Who wrote which turn."""


_KINDS = ("calls", "calls", "calls", "text", "scrap", "system", "picture")


@st.composite
def sessions(draw: st.DrawFn, first: Wire, second: Wire) -> Session:
    """A session that moves from one wire to another and back, at any place where a model is asked."""
    one, other = draw(_of_wire(first)), draw(_of_wire(second))
    pen = Pen(draw(st.integers(0, 2**32)))
    messages: list[Message] = [user("Hi!"), pen.question()]  # a conversation of nothing is not sent everywhere
    stages: list[list[Message]] = []
    for author in (one, other, one):
        for kind in draw(st.lists(st.sampled_from(_KINDS), min_size=1, max_size=2)):
            size = draw(st.integers(0, 11)) if kind in {"calls", "text"} else 0
            messages += _turn(pen, author, kind, size)
        stages.append(list(messages))
    return Session(one, other, stages[0], stages[1], stages[2], pen.written)


def _of_wire(wire: Wire) -> st.SearchStrategy[Author]:
    """One of the authors that speak this wire."""
    return st.sampled_from([author for author in AUTHORS if author.wire is wire])


def _turn(pen: Pen, author: Author, kind: str, size: int) -> list[Message]:
    """A reply and what follows it: results, perhaps with words of the user, or another question."""
    match kind:
        case "calls":
            reply = pen.reply(author, 1 + size // 2 % 2 + size // 8, size % 3)
            steering = [user("Faster!", origin="steering")] if size % 2 else []
            return [reply, pen.results(reply), *steering]
        case "text":
            return [pen.reply(author, 0, size % 3), pen.question()]
        case "scrap":
            return [pen.scrap(), pen.question("auto_continue")]
        case "picture":
            return [pen.picture(author), pen.question()]
        case _:
            return [Message("system", (Text("Be brief."),)), pen.question()]
