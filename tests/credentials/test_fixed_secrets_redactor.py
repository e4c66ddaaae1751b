"""Values, in every form, taken out of texts, bytes, data, parts and events; also of texts that come in pieces."""

import base64
import enum
import json
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from perdure import Citation, Document, Image, Message, Text, Thinking, ToolCall, ToolOutput, ToolResult, user
from perdure._credentials.forms import list_secret_forms
from perdure.events import CitationAdded, MessageAdded, ToolFinished, ToolProgress
from perdure.permissions import FixedSecretsRedactor, RedactingStream
from tests.credentials.shapes import SECRETS, forms, hits

KEY = 's3cr3t/v+l u"e'
SCRUBBER = FixedSecretsRedactor({"key": KEY, "pin": "48151623"})
EVERY = FixedSecretsRedactor(SECRETS)


@pytest.mark.parametrize("name", SECRETS)
def test_every_form_of_every_shape_is_taken_out(name):
    value = SECRETS[name]
    for form, written in forms(value).items():
        scrubbed = EVERY.redact_text(f"before {written} after")
        assert hits(scrubbed, {name: value}) == [], form
        assert "{{secret_" in scrubbed


@pytest.mark.parametrize("before", ["", "a", "ab", "user:", "a longer beginning"])
@pytest.mark.parametrize("after", ["", "x", "xy", " and a longer end"])
def test_a_value_is_found_in_the_base64_of_something_longer(before, after):
    encoded = base64.b64encode(f"{before}{KEY}{after}".encode()).decode()
    scrubbed = SCRUBBER.redact_text(encoded)
    assert "{{key}}" in scrubbed
    left = scrubbed.replace("{{key}}", "")
    assert len(left) <= -(-len(before) * 8 // 6) + -(-len(after) * 8 // 6) + 4


def test_base64_that_was_broken_into_lines_is_found():
    value = "k" * 40 + "0123456789" * 20
    assert (
        hits(
            FixedSecretsRedactor({"key": value}).redact_text(base64.encodebytes(value.encode()).decode()),
            {"key": value},
        )
        == []
    )
    assert base64.encodebytes(value.encode()).decode().splitlines()[1] not in FixedSecretsRedactor(
        {"key": value}
    ).redact_text(base64.encodebytes(value.encode()).decode())


def test_the_text_in_a_value_that_is_json_is_secret_on_its_own():
    account = json.dumps(
        {"type": "account", "private_key": "-----BEGIN KEY-----\nabcdefghijklmnop\n-----END KEY-----\n"}
    )
    fixed = FixedSecretsRedactor({"account": account})
    assert fixed.redact_text("the key abcdefghijklmnop of an account") == "the key {{account}} of an account"
    assert fixed.redact_value(json.loads(account)) == {"type": "account", "private_key": "{{account}}"}


def test_a_value_that_is_json_is_found_as_the_data_that_it_describes():
    fixed = FixedSecretsRedactor({"login": '{"user": "anna", "pin": 7}'})
    assert fixed.redact_value({"user": "anna", "pin": 7}) == "{{login}}"
    assert fixed.redact_value(ToolOutput(render={"a": [{"user": "anna", "pin": 7}]})).render == '{"a":[{{login}}]}'


def test_the_armour_of_a_key_and_short_lines_are_not_secret():
    fixed = FixedSecretsRedactor({"key": "-----BEGIN KEY-----\nabcdefghijklmnop\nend\n-----END KEY-----"})
    assert fixed.redact_text("-----BEGIN KEY----- end") == "-----BEGIN KEY----- end"


def test_the_longest_value_is_taken_out_first():
    fixed = FixedSecretsRedactor({"short": "abcd", "long": "abcd-efgh", "inner": "d-ef"})
    assert fixed.redact_text("abcd abcd-efgh d-ef") == "{{short}} {{long}} {{inner}}"
    overlapping = FixedSecretsRedactor({"short": "xxab", "long": "ab-long-value"})
    assert overlapping.redact_text("xxab-long-value") == "{{short}}{{long}}"


def test_the_first_of_two_names_stands_for_their_value():
    assert FixedSecretsRedactor({"one": "same-value", "two": "same-value"}).redact_text("same-value") == "{{one}}"


@pytest.mark.parametrize("value", ["", "a", "abc", "   "])
def test_a_value_that_is_too_short_is_not_looked_for(value):
    assert FixedSecretsRedactor({"key": value}).redact_text("a abc    text") == "a abc    text"


def test_the_beginning_of_a_value_that_was_cut_is_taken_out():
    fixed = FixedSecretsRedactor({"key": "abcdefghijklmnop"})
    assert fixed.redact_text("<object with abcdefghijk…>") == "<object with {{key}}…>"
    assert fixed.redact_text("<object with abcd…>") == "<object with abcd…>"


def test_data_is_scrubbed_down_to_its_keys_and_numbers():
    data = {KEY: [{"x": f"a {KEY}"}, 48151623, 48151623.5, 7, None, True], "hex": KEY.encode().hex()}
    scrubbed = SCRUBBER.redact_value(data)
    assert scrubbed == {"{{key}}": [{"x": "a {{key}}"}, "{{pin}}", "{{pin}}.5", 7, None, True], "hex": "{{key}}"}


def test_two_keys_that_are_forms_of_one_value_are_both_kept():
    scrubbed = SCRUBBER.redact_value({KEY: 1, KEY.encode().hex(): 2})
    assert sorted(scrubbed.values()) == [1, 2]
    assert hits(json.dumps(scrubbed), {"key": KEY}) == []


def test_what_holds_no_value_stays_the_very_same():
    class Result:
        def tolist(self):
            return ["nothing"]

    for value in (
        "text",
        b"bytes",
        {"a": [1]},
        Result(),
        [Text("x")],
        Message("user"),
        ToolOutput("x", render={"a": 1}),
    ):
        assert SCRUBBER.redact_value(value) is value


def test_an_object_becomes_what_json_can_hold_of_it():
    class Leaky:
        def __repr__(self):
            return f"<Leaky {KEY}>"

    assert KEY not in SCRUBBER.redact_value(Leaky())
    assert KEY not in str(SCRUBBER.redact_value({"deep": [Leaky()]}))


def test_parts_stay_parts_and_bytes_are_looked_into():
    parts = [
        Text(KEY),
        Document(data=f"x{KEY}y".encode(), name=KEY, media_type="text/plain"),
        Image(url=f"https://h/{KEY}"),
    ]
    text, document, image = SCRUBBER.redact_value(parts)
    assert text == Text("{{key}}")
    assert document == Document(data=b"x{{key}}y", name="{{key}}", media_type="text/plain")
    assert image == Image(url="https://h/{{key}}")


def test_bytes_that_are_no_text_are_looked_into_too():
    value = "pässwörd-1"
    assert (
        FixedSecretsRedactor({"key": value}).redact_bytes(b"\xff\x00" + value.encode() + b"\xfe")
        == b"\xff\x00{{key}}\xfe"
    )


def test_a_result_is_scrubbed_everywhere_and_keeps_its_ids():
    result = ToolResult("call_1", KEY, (Text(KEY),), render={KEY: KEY}, summary=KEY, preview=KEY)
    event = ToolFinished("call_1", KEY, result, run_id="run")
    scrubbed = SCRUBBER.redact_value(event)
    assert scrubbed.result == ToolResult(
        "call_1", "{{key}}", (Text("{{key}}"),), render={"{{key}}": "{{key}}"}, summary="{{key}}", preview="{{key}}"
    )
    assert (scrubbed.call_id, scrubbed.run_id) == ("call_1", "run")


def test_the_arguments_of_a_call_stay_json():
    call = ToolCall("call_1", "send", json.dumps({"pin": 48151623, "key": KEY}))
    message = Message("assistant", (call, ToolCall("call_2", "send", f'{{"broken": "{KEY.encode().hex()}')))
    whole, broken = SCRUBBER.redact_value(MessageAdded(message)).message.parts
    assert json.loads(whole.arguments) == {"pin": "{{pin}}", "key": "{{key}}"}
    assert broken.arguments == '{"broken": "{{key}}'


def test_thinking_that_was_changed_loses_its_proof_and_no_other_does():
    changed, same = SCRUBBER.redact_value([Thinking(f"use {KEY}", "proof", "data"), Thinking("fine", KEY, KEY)])
    assert (changed.text, changed.signature, changed.data) == ("use {{key}}", "", "data")
    assert same == Thinking("fine", KEY, KEY)


def test_a_scrubber_does_not_show_what_it_looks_for():
    assert repr(SCRUBBER) == "FixedSecretsRedactor(key, pin)"
    assert SCRUBBER.longest >= max(map(len, list_secret_forms(KEY)))


def test_an_event_with_any_data_is_scrubbed():
    assert SCRUBBER.redact_value(ToolProgress("c", "t", {"a": KEY})).data == {"a": "{{key}}"}
    assert SCRUBBER.redact_value(MessageAdded(user(f"my key is {KEY}"))).message.text == "my key is {{key}}"


# -- in pieces ---------------------------------------------------------------------------------------------------------


def streamed(fixed, chunks):
    stream = RedactingStream(fixed)
    return "".join([*[stream.feed(chunk) for chunk in chunks], stream.end()])


@pytest.mark.parametrize("form", forms(KEY))
def test_a_value_is_found_wherever_it_is_split(form):
    text = f"before {forms(KEY)[form]} after"
    for place in range(len(text) + 1):
        assert streamed(SCRUBBER, [text[:place], text[place:]]) == SCRUBBER.redact_text(text)
    assert streamed(SCRUBBER, text) == SCRUBBER.redact_text(text)


def test_no_more_is_held_back_than_may_be_a_value():
    stream = RedactingStream(FixedSecretsRedactor({"key": "abcd-efgh"}))
    assert [stream.feed(chunk) for chunk in ("hello ab", "out ", "abcd", "-efg", "x", "abc")] == [
        *["hello ", "about ", "", "", "abcd-efgx", ""]
    ]
    assert stream.end() == "abc"
    assert not stream.changed
    assert stream.feed("abcd-efgh!") == "{{key}}!"
    assert stream.changed


secrets = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}"), min_size=4, max_size=30)


@given(st.data(), st.lists(secrets, min_size=1, max_size=3))
def test_in_pieces_or_whole_the_same_is_taken_out(data, values):
    assume(all(len(value.strip()) >= 4 and value not in "{{k0}}{{k1}}{{k2}}" for value in values))
    names = {f"k{place}": value for place, value in enumerate(values)}
    fixed = FixedSecretsRedactor(names)
    leaks = st.sampled_from([form for value in values for form in list_secret_forms(value)])
    pieces = data.draw(st.lists(st.one_of(leaks, leaks.map(lambda form: form[:-1]), st.text(max_size=8)), max_size=8))
    text = "".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    chunks = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole, at_once = fixed.redact_text(text), streamed(fixed, [text])
    assert streamed(fixed, chunks) == at_once
    assert streamed(fixed, text) == at_once
    if not (fixed._scattered.find_spans(text) or fixed._dumped.find_spans(text)):
        assert at_once == whole  # those are looked for in the whole text: some span two forms
    left = [each for redacted in (whole, at_once) for each in re.split(r"\{\{k[012]\}\}", redacted)]
    assert not [value for value in values if any(value in each for each in left)]


def test_a_citation_and_the_metadata_of_a_reply_are_cleaned_everywhere():
    cited = Citation(f"https://a?k={KEY}", f"T {KEY}", f"Q {KEY}", 0, 3, {"url": KEY})
    message = Message("assistant", (Text("See"), cited), metadata={"logprobs": [{"token": KEY}]})
    scrubbed = SCRUBBER.redact_value(MessageAdded(message)).message
    assert scrubbed.citations[0] == Citation("https://a?k={{key}}", "T {{key}}", "Q {{key}}", 0, 3, {"url": "{{key}}"})
    assert scrubbed.metadata == {"logprobs": [{"token": "{{key}}"}]}
    told = SCRUBBER.redact_value(CitationAdded(cited))
    assert told.citation == scrubbed.citations[0]


class Port(enum.StrEnum):
    """Texts of a class of their own."""

    SECRET = "s3cr3t-value-1"
    OTHER = "other"


class Name(str):
    """Another one, which says something else of itself."""

    __slots__ = ()

    def __str__(self) -> str:
        return "hidden"


def test_a_text_of_a_class_of_its_own_is_redacted_and_stays_as_it_is_without_a_secret():
    redactor = FixedSecretsRedactor({"key": "s3cr3t-value-1"})
    given = ToolOutput([Port.SECRET, Port.OTHER, Name("a s3cr3t-value-1"), Name("b")])
    content = redactor.redact_value(given).content
    assert [str.__str__(each) for each in content] == ["{{key}}", "other", "a {{key}}", "b"]


def test_numbers_that_are_secrets_are_redacted_and_others_keep_their_type():
    redactor = FixedSecretsRedactor({"pin": "48151623"})
    assert redactor.redact_value({"a": 48151623, "b": [48151624, 1.5], "c": True}) == {
        "a": "{{pin}}",
        "b": [48151624, 1.5],
        "c": True,
    }
    value = {"a": [1, (2, "x")]}
    assert redactor.redact_value(value) is value


def test_a_secret_in_json_is_found_however_its_parts_are_ordered_when_decoded():
    secret = '{"user": "anna", "key": "0123456789abcdef"}'
    redactor = FixedSecretsRedactor({"account": secret})
    assert redactor.redact_value({"user": "anna", "key": "0123456789abcdef"}) != {
        "user": "anna",
        "key": "0123456789abcdef",
    }
    assert redactor.redact_value(["plain"]) == ["plain"]


def test_data_stays_data_when_only_the_marks_around_it_would_spell_a_secret():
    redactor = FixedSecretsRedactor({"key": 'first","second'})
    value = ["first", "second"]
    assert redactor.redact_value(value) is value
    assert redactor.redact_value('["first","second"]') == '["{{key}}"]'


def test_a_text_of_a_class_of_its_own_without_a_secret_is_the_very_same() -> None:
    redactor = FixedSecretsRedactor({"key": "s3cr3t-value-1"})
    other, name = Port.OTHER, Name("b")
    assert redactor.redact_value(other) is other
    assert redactor.redact_value(name) is name
    redacted = redactor.redact_value(Port.SECRET)
    assert (type(redacted), redacted) == (str, "{{key}}")


@pytest.mark.parametrize(
    ("secret", "pieces", "shown"),
    [
        ("abcd-efgh", ["abcd-ef", "gh!"], ["", "{{key}}!"]),
        ("abcd-ef", ["abcd-ef!"], ["{{key}}!"]),  # a placeholder that is as long as its secret
        ("abcd-efgh", ["plain"], ["plain"]),
    ],
)
def test_a_stream_knows_whether_anything_was_redacted(secret: str, pieces: list[str], shown: list[str]) -> None:
    stream = RedactingStream(FixedSecretsRedactor({"key": secret}))
    assert [stream.feed(piece) for piece in pieces] == shown
    assert stream.changed is ("{{key}}" in "".join(shown))
    assert stream.end() == ""
    assert stream.changed is ("{{key}}" in "".join(shown))


def test_a_stream_knows_that_its_rest_was_redacted() -> None:
    stream = RedactingStream(FixedSecretsRedactor({"key": "abcdefghijklmnop"}))
    assert stream.feed("abcdefghijk") == ""
    assert stream.changed is False
    assert stream.end() == "{{key}}"  # the beginning of a value that was cut
    assert stream.changed is True
