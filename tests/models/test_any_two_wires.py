"""Conversations go from any model to any other and back: nothing is refused, nothing is given away, nothing is lost."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from perdure import Message, Text
from perdure._core.values.jsonable import replace_surrogates
from perdure._core.values.message import Media
from perdure._models.wires.attachments import encode_base64, normalize_media
from perdure.models import EncodingMemo, Request, Wire
from tests.models.authors import WIRES, Author
from tests.models.histories import PRIVATE, TOOLS, Session, sessions

EXAMPLES = 2_000 if os.environ.get("PERDURE_SEARCH") == "long" else 10
"""For each of the 25 pairs."""

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
"""What a tool may be called in a conversation, everywhere. Models call tools of any name."""

PAIRS = [pytest.param(one, other, id=f"{one.name}-{other.name}") for one in WIRES for other in WIRES]


@pytest.mark.faults
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_session_moves_to_another_wire_and_back(first: Wire, second: Wire):
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(sessions(first, second))
    def check(session):
        move(session)

    check()


def move(session: Session) -> None:
    """Ask whoever is to answer at each stage, and look at what is sent."""
    memos = {id(session.first): EncodingMemo(), id(session.second): EncodingMemo()}
    stages = [
        (session.first, session.begun),
        (session.second, session.begun),
        (session.second, session.moved),
        (session.first, session.moved),
        (session.first, session.back),
    ]
    for author, messages in stages:
        sent = ask(author, messages, memos[id(author)])
        body = json.loads(sent)
        assert list(author.wire.lint(body, author.profile)) == []
        assert sent == ask(author, messages, None)
        assert PRIVATE not in sent
        check_reasoning(session, author, messages, body)
        check_nothing_is_lost(messages, body)
        assert [name for name in called(body) if not NAME(name)] == []


def ask(author: Author, messages: Sequence[Message], memo: EncodingMemo | None) -> str:
    """The body that is sent; without a memo, as if it were sent for the first time."""
    request = Request(messages=messages, instructions="Be kind.", tools=TOOLS, session_id="" if memo is None else "s")
    body = author.wire.encode(request, author.profile, memo or EncodingMemo()).body.decode()
    return re.sub(r'"prompt_cache_key":"[^"]*",?', "", body)


# -- whose thoughts are sent -------------------------------------------------------------------------------------------


def check_reasoning(session: Session, author: Author, messages: Sequence[Message], body: Any) -> None:
    """An author gets back exactly what it wrote on turns with calls; nobody gets anything of another."""
    found = list(tokens(body))
    for turn in {turn for _, value in found for turn in turns_in(value)}:
        made = session.written.get(turn)
        assert made is not None, f"turn {turn} was cancelled, and was shown to {author}"
        assert author.profile.is_author(made.message.provider, made.message.model), f"{author} was shown turn {turn}"
    for turn, made in session.written.items():
        if made.author is author and made.message.tool_calls and any(made.message is each for each in messages):
            returned = [(key, value) for key, value in found if turn in turns_in(value)]
            assert returned == [(key, value) for key, value in tokens(made.body) if key not in author.dropped]


def tokens(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text that belongs to an author, with the name of its field, in order."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from tokens(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from tokens(each, key)
    elif isinstance(value, str) and turns_in(value):
        yield key, value


def turns_in(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"(?:SECRET|THOUGHT)(\d{4})", text)]


# -- what is said and shown --------------------------------------------------------------------------------------------


def check_nothing_is_lost(messages: Sequence[Message], body: Any) -> None:
    """All words are sent; and what is not text is shown, or at least told about."""
    sent = "\n".join(leaves(body))
    for message in messages:
        parts = [each for part in message.parts for each in getattr(part, "content", (part,))]
        for part in parts:
            if isinstance(part, Text) and part.text.strip():
                assert replace_surrogates(part.text) in sent
            elif isinstance(part, Media):
                signs = [replace_surrogates(part.name), part.url, encode_base64(normalize_media(part))]
                assert any(sign in sent for sign in signs if sign), part


def leaves(value: Any) -> Iterator[str]:
    """Every text in a body."""
    if isinstance(value, dict):
        for each in value.values():
            yield from leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each)
    elif isinstance(value, str):
        yield value


def called(value: Any) -> Iterator[str]:
    """The names of all tools that are called, whatever a call looks like."""
    if isinstance(value, dict):
        if "name" in value and {"arguments", "args", "input"} & value.keys():
            yield value["name"]
        for each in value.values():
            yield from called(each)
    elif isinstance(value, list):
        for each in value:
            yield from called(each)
