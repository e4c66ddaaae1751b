"""Conversations that the provider takes, and that it is known to refuse."""

from typing import Any

import pytest

from perdure.models.gemini import WIRE
from perdure.models.profile import Profile

OLD = Profile(provider="google", model="gemini-2.5-flash")
NEW = Profile(provider="google", model="gemini-3-flash")
HELLO = {"role": "user", "parts": [{"text": "Hi"}]}
DONE = {"role": "model", "parts": [{"text": "Done"}]}


def calling(*names: str, **more: Any) -> dict[str, Any]:
    return {"role": "model", "parts": [{"functionCall": {"name": name, "args": {}, **more}} for name in names]}


def answering(*names: str, **more: Any) -> dict[str, Any]:
    parts = [{"functionResponse": {"name": name, "response": {"output": ""}, **more}} for name in names]
    return {"role": "user", "parts": parts}


def faults(*contents: Any, profile: Profile = OLD, **more: Any) -> list[str]:
    return list(WIRE.lint({"contents": list(contents), **more}, profile))


@pytest.mark.parametrize(
    "contents",
    [
        [HELLO],
        [HELLO, DONE, HELLO],
        [HELLO, HELLO],
        [HELLO, DONE, DONE, HELLO],
        [HELLO, calling("f", "g"), answering("g", "f"), DONE, HELLO],
        [HELLO, calling("f"), answering("f"), calling("f"), answering("f")],
        [HELLO, calling("f"), answering("f"), HELLO],
        [{"parts": [{"text": "Hi"}]}],
        [{"role": "user", "parts": [{"inline_data": {"mime_type": "image/png", "data": "AA=="}}]}],
        [{"role": "user", "parts": [{"fileData": {"fileUri": "files/x"}}]}],
        [HELLO, {"role": "model", "parts": [{"text": "", "thoughtSignature": "S"}, {"newThing": {}}]}, HELLO],
    ],
)
def test_conversations_that_are_taken(contents):
    assert faults(*contents) == []


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ([], "no contents"),
        ([DONE, HELLO], "first content"),
        ([HELLO, DONE], "last content"),
        ([{"role": "user", "parts": []}], "must have parts"),
        ([{"role": "user", "parts": [{"text": ""}]}], "empty text"),
        ([{"role": "user", "parts": [{"thought": True}]}], "must have exactly one kind"),
        ([{"role": "user", "parts": [{"text": "a", "inlineData": {}}]}], "must have exactly one kind"),
        ([{"role": "user", "parts": [{"inlineData": {"data": "AA=="}}]}], "mimeType"),
        ([{"role": "user", "parts": [{"fileData": {"mimeType": "image/png"}}]}], "fileUri"),
        ([HELLO, calling("f")], "have no responses"),
        ([HELLO, calling("f"), HELLO], "need as many responses at once, not 0"),
        ([HELLO, calling("f"), DONE, HELLO], "continues before"),
        ([HELLO, calling("f", "g"), answering("f")], "not 1"),
        ([HELLO, calling("f"), answering("g")], "not those of the calls"),
        ([HELLO, calling("f", id="a"), answering("f", id="b")], "no call 'b'"),
        ([HELLO, answering("f")], "answers no call"),
        ([HELLO, DONE, calling("f"), answering("f")], "must follow"),
        ([calling("f"), answering("f")], "first content"),
        ([HELLO, {**answering("f"), "role": "model"}, HELLO], "only the user may send"),
        ([{**calling("f"), "role": "user"}], "only the model may send"),
        ([HELLO, calling("1"), answering("1")], "cannot be named '1'"),
        ([HELLO, calling("f", args="x"), answering("f")], "must be an object"),
        ([HELLO, calling("f"), answering("f", response=[1])], "must be an object"),
        ([HELLO, calling("f", id="a"), answering("f"), calling("f", id="a"), answering("f")], "used twice"),
    ],
)
def test_conversations_that_are_refused(contents, words):
    [fault] = faults(*contents)
    assert words in fault


def test_new_models_want_a_signature_on_the_first_call_of_every_turn_since_the_user_spoke():
    signed = calling("f", "g")
    signed["parts"][0]["thoughtSignature"] = "S"
    assert faults(HELLO, signed, answering("f", "g"), profile=NEW) == []
    assert faults(HELLO, calling("f"), answering("f"), DONE, HELLO, profile=NEW) == []
    [fault] = faults(HELLO, calling("f"), answering("f"), signed, answering("f", "g"), profile=NEW)
    assert "the call of 'f' has no thoughtSignature" in fault
