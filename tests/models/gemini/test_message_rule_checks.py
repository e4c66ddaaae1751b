"""Conversations that the provider takes, and that it is known to refuse."""

from typing import Any

import pytest

from perdure._models.wires.gemini import WIRE
from perdure.models import Profile

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


@pytest.mark.parametrize(
    ("contents", "told"),
    [
        ([], "there are no contents; add a message"),
        ([{"role": "user", "parts": []}], "a content must have parts, and this one has none"),
        ([HELLO, calling("f", "g", id="a")], "the calls f (a), g (a) have no responses"),
        ([HELLO, DONE], "the last content is the model's; it must be the user's, or a function response"),
        ([DONE, HELLO], "the first content is the model's; it must be the user's"),
        ([HELLO, calling("f"), DONE], "the model continues before its calls f have responses"),
        (
            [HELLO, {**answering("f"), "role": "model"}, HELLO],
            "a content of the model has a function response, which only the user may send",
        ),
        (
            [HELLO, DONE, calling("f"), answering("f")],
            "a function call must follow a content of the user, or a function response",
        ),
        (
            [{**calling("f"), "role": "user"}],
            "a content of the user has a function call, which only the model may send",
        ),
        ([HELLO, answering("f")], "the function response of 'f' answers no call before it"),
        (
            [{"role": "user", "parts": [{"thoughtSignature": "S", "thought": True}]}],
            "a part must have exactly one kind of data, and this one has ['thought', 'thoughtSignature']",
        ),
        (
            [{"role": "user", "parts": [{"text": "a", "fileData": {}}]}],
            "a part must have exactly one kind of data, and this one has ['text', 'fileData']",
        ),
        ([{"role": "user", "parts": [{"text": ""}]}], "a part has empty text and no signature"),
        (
            [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png"}}]}],
            "inlineData must have data and a mimeType",
        ),
        ([{"role": "user", "parts": [{"fileData": {}}]}], "fileData must have a fileUri"),
        ([HELLO, calling("f", args=[1]), answering("f")], "the args of 'f' must be an object, not [1]"),
        ([HELLO, calling("f"), answering("f", response="x")], "the response of 'f' must be an object, not 'x'"),
        (
            [HELLO, calling(7), answering(7)],  # type: ignore[arg-type]
            "a function cannot be named 7: letters, digits and _.:- only, at most 64, and no digit first",
        ),
        ([HELLO, calling("f", "g"), answering("f")], "2 calls (f, g) need as many responses at once, not 1"),
        ([HELLO, calling("f"), answering("g")], "the responses are not those of the calls f"),
        ([HELLO, calling("f", id="a"), answering("f", id="b")], "there is no call 'b' among the calls f (a)"),
        (
            [HELLO, calling("f", id="a"), answering("f"), calling("f", id="a"), answering("f")],
            "the call id 'a' is used twice",
        ),
    ],
)
def test_a_refusal_is_told_in_full(contents: list[Any], told: str) -> None:
    assert faults(*contents) == [told]


def test_a_missing_signature_is_told_with_the_model() -> None:
    assert faults(HELLO, calling("f"), answering("f"), profile=NEW) == [
        "the call of 'f' has no thoughtSignature, which 'gemini-3-flash' requires"
    ]
    assert faults(HELLO, calling("f"), answering("f"), HELLO, profile=NEW) == []
    assert faults(HELLO, calling("f", id="a"), answering("f"), HELLO) == []
