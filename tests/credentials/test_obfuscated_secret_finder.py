"""Secrets whose characters are encoded one by one, separated, cut off, or broken into lines."""

import base64
import html
import json
import random
import string
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._credentials.hidden_forms import ObfuscatedSecretFinder
from perdure.permissions import FixedSecretsRedactor

VALUES = {
    "token": "sk-live-4fT9xQ2mZp7LwB1r",
    "password": "p@ss:w/rd+9x8Q7w6&x",
    "unicode": "pässwörd-ж9x8Q7w6",
    "hex": "9f86d081884c7d659a2feaa0c55ad015",
    "spaces": "correct horse battery x7Q9",
}


def each_byte(value: str, form: str, between: str = "") -> str:
    return between.join([form.format(byte) for byte in value.encode()])


def each_character(value: str, form: str) -> str:
    return "".join([form.format(ord(character)) for character in value])


ENCODINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda value: value,
    "URL": lambda value: quote(value, safe=""),
    "URL, form": quote_plus,
    "URL twice": lambda value: quote(quote(value, safe=""), safe=""),
    "URL twice, slashes kept": lambda value: quote(quote(value)),
    "percent everywhere": lambda value: each_byte(value, "%{:02X}"),
    "percent everywhere, lower case": lambda value: each_byte(value, "%{:02x}"),
    "percent everywhere, twice": lambda value: each_byte(value, "%25{:02X}"),
    "percent everywhere, three times": lambda value: each_byte(value, "%2525{:02x}"),
    "hex": lambda value: value.encode().hex(),
    "hex, upper case": lambda value: value.encode().hex().upper(),
    "hex with colons": lambda value: value.encode().hex(":"),
    "hex with colons, upper case": lambda value: value.encode().hex(":").upper(),
    "hex with spaces": lambda value: value.encode().hex(" "),
    "hex with spaces, upper case": lambda value: value.encode().hex(" ").upper(),
    "hex with dashes": lambda value: value.encode().hex("-"),
    "hex with commas": lambda value: value.encode().hex(","),
    "hex as a list": lambda value: each_byte(value, "0x{:02x}", ", "),
    "hex as a list, upper case": lambda value: each_byte(value, "0x{:02X}", ","),
    "backslash x": lambda value: each_byte(value, "\\x{:02x}"),
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64, URL-safe": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    "base64, without padding": lambda value: base64.b64encode(value.encode()).decode().rstrip("="),
    "base64, URL-safe, without padding": lambda value: base64.urlsafe_b64encode(value.encode()).decode().rstrip("="),
    "HTML": html.escape,
    "HTML, decimal": lambda value: each_character(value, "&#{};"),
    "HTML, hex": lambda value: each_character(value, "&#x{:x};"),
    "HTML, hex, upper case": lambda value: each_character(value, "&#x{:04X};"),
    "JSON": lambda value: json.dumps(value)[1:-1],
    "JSON in JSON": lambda value: json.dumps(json.dumps(value))[3:-3],
    "JSON, every character": lambda value: each_character(value, "\\u{:04x}"),
    "JSON, every character, upper case": lambda value: each_character(value, "\\u{:04X}"),
    "a line break": lambda value: f"{value[:9]}\n{value[9:]}",
    "a line break and indentation": lambda value: f"{value[:10]}\r\n    {value[10:]}",
    "a continued line": lambda value: f"{value[:11]}\\\n{value[11:]}",
    "a quoted line break": lambda value: f"{value[:12]}\n> {value[12:]}",
    "three line breaks": lambda value: f"{value[:10]}\n{value[10]}\n{value[11]}\n{value[12:]}",
    "an escaped line break": lambda value: f"{value[:9]}\\n{value[9:]}",
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_hidden_in_every_encoding(name, encoding):
    written = ENCODINGS[encoding](VALUES[name])
    assert FixedSecretsRedactor(VALUES).redact_text(f"before <{written}> after") == f"before <{{{{{name}}}}}> after"


@pytest.mark.parametrize("shift", [0, 1, 2])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_of_something_longer_is_found_at_every_alignment(shift, encode):
    value = VALUES["token"]
    written = encode(b"x" * shift + value.encode() + b"yz").decode()
    shown = FixedSecretsRedactor(VALUES).redact_text(written)
    assert "{{token}}" in shown
    assert len(shown.replace("{{token}}", "")) <= 9


@pytest.mark.parametrize("length", range(12, 24))
@pytest.mark.parametrize("end", ["", "...", "…", "*****", "\n", " (cut)", '"'])
def test_the_beginning_of_a_token_is_hidden_wherever_it_was_cut(length, end):
    shown = FixedSecretsRedactor(VALUES).redact_text(f"key={VALUES['token'][:length]}{end}")
    assert shown == f"key={{{{token}}}}{end}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("sk-live-4fT9xQ2mZp7LwB1r", "keys begin with sk-live- and are long"),
        ("https://hooks.example/T1/B2/x7Q9x7Q9x7Q9", "see https://example.com"),
        ("correct horse battery x7Q9", "correct horse"),
        ('{"type": "service_account", "key": "x7Q9x7Q9x7Q9x7Q9"}', '{"type": "service_account"}'),
        ("user: anna\npassword: x7Q9x7Q9", "the password is wrong"),
        ("abcd1234efgh", "abcd123"),
    ],
)
def test_a_beginning_that_may_be_ordinary_text_is_left(value, text):
    assert FixedSecretsRedactor({"key": value}).redact_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "100% of 50%; 20%25 &amp; &lt;b&gt; \\n \\u00e9 \\x41",
        "%61%62%63%64%65%66%67%68 &#97;&#98;&#99;&#100; \\u0061\\u0062\\u0063\\u0064",
        "%ff%fe%fd%fc%fb &#xfffffff;&#xfffffff;&#0;&#x110000; &nosuch;&nosuch;&nosuch;&nosuch;",
        "\\ud800\\ud800\\ud800\\ud800",
        "de:ad:be:ef:de:ad:be:ef 00 11 22 33 44 55 66 77",
        "line\nline\r\nline\\nline\\\nline",
        "sk-liv\ne-\n",
        "73:6b:2d:6c",
    ],
)
def test_other_text_of_these_shapes_is_unchanged(text):
    assert FixedSecretsRedactor(VALUES).redact_text(text) == text


def test_short_values_are_not_looked_for_in_pieces():
    shown = FixedSecretsRedactor({"word": "read"})
    assert shown.redact_text("re\nad %72%65%61%64") == "re\nad %72%65%61%64"
    assert shown.redact_name("read_text") == "read_text"
    assert ObfuscatedSecretFinder({}).find_spans("%61%62%63%64%65%66") == []


def test_what_two_ways_of_looking_find_at_one_place_is_replaced_once():
    shown = FixedSecretsRedactor({"key": "000:<\x1b\x7f\x7f\r"})
    assert shown.redact_text("a 000:&lt;\\u001B\\u007F\\u007F\\r b") == "a {{key}} b"


@given(st.text(), st.sampled_from(sorted(ENCODINGS)), st.sampled_from(sorted(VALUES)), st.text())
def test_whatever_stands_around_it_the_value_is_hidden(before, encoding, name, after):
    value = VALUES[name]
    shown = FixedSecretsRedactor({name: value}).redact_text(f"{before}\n<{ENCODINGS[encoding](value)}>\n{after}")
    assert f"{{{{{name}}}}}" in shown
    assert value not in shown


@given(st.text(alphabet=string.ascii_letters + "%&#;\\ux0123456789:\n -", max_size=400))
def test_text_without_a_value_is_never_changed(text):
    assert FixedSecretsRedactor({"key": "Zq" + "7" * 30}).redact_text(text) == text


def test_long_texts_that_nearly_match_all_the_time_are_searched_in_time():
    value = VALUES["token"]
    filter_ = FixedSecretsRedactor({"key": value})
    for unit in (
        "%61%62%63%64",
        "sk-liv\n",
        "73:6b:2d:",
        "\\u0061\\u0062\\u0063\\u0064",
        "&#97;&#98;&#99;&#100;",
        value[:11],
    ):
        text = unit * 20_000
        assert len(filter_.redact_text(text)) <= len(text)
    noise = "".join(random.Random(7).choices(string.printable, k=200_000))
    assert filter_.redact_text(noise) == noise
