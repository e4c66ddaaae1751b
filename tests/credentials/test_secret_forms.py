"""The forms of a secret: what programs make of a value on its way, and the parts that are secret by themselves."""

import base64
import html
import json
import re
import shlex
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from perdure._credentials.forms import find_revealing_prefix_length, list_secret_forms, list_unencoded_forms

VALUES = [
    "plain-token-1234",
    "pä\"ss/w<o>r&d's 1+2=3~",
    "tab\tand \\ back\u2028slash \U0001f511",
    "Ünï?ø#cödé:@!$*,;[]",
]
PROGRAMS: list[tuple[str, Callable[[str], str]]] = [
    ("plain", str),
    ("JSON", lambda text: json.dumps(text)[1:-1]),
    ("JSON with other letters", lambda text: json.dumps(text, ensure_ascii=False)[1:-1]),
    ("JSON with capital digits", lambda text: capitals(json.dumps(text)[1:-1])),
    ("JSON of PHP", lambda text: json.dumps(text)[1:-1].replace("/", "\\/")),
    ("JSON in a script", lambda text: for_scripts(json.dumps(text, ensure_ascii=False)[1:-1])),
    ("JSON in JSON", lambda text: json.dumps(json.dumps(text)[1:-1])[1:-1]),
    ("JSON in JSON with other letters", lambda text: twice(text, ensure_ascii=False)),
    ("repr", lambda text: repr(text)[1:-1]),
    ("ascii", lambda text: ascii(text)[1:-1]),
    ("repr of bytes", lambda text: repr(text.encode())[2:-1]),
    ("HTML", html.escape),
    ("HTML without quotes", lambda text: html.escape(text, quote=False)),
    ("shell", lambda text: shlex.quote(text).removeprefix("'").removesuffix("'")),
    ("URL", quote),
    ("URL in lower case", lambda text: re.sub("%..", lambda found: found[0].lower(), quote(text))),
    ("whole URL", lambda text: quote(text, safe="")),
    ("encodeURIComponent", lambda text: quote(text, safe="!'()*")),
    ("encodeURI", lambda text: quote(text, safe="!$&'()*+,;=:@/?#[]~")),
    ("URL in a URL", lambda text: quote(quote(text, safe=""))),
    ("form", quote_plus),
    ("form with slashes", lambda text: quote_plus(text, safe="/")),
    ("base64", lambda text: base64.b64encode(text.encode()).decode()),
    ("base64 without its end", lambda text: base64.b64encode(text.encode()).decode().rstrip("=")),
    ("base64 of URLs", lambda text: base64.urlsafe_b64encode(text.encode()).decode()),
    ("hex", lambda text: text.encode().hex()),
    ("capital hex", lambda text: text.encode().hex().upper()),
]


def capitals(text: str) -> str:
    pieces = text.split("\\u")
    return "\\u".join([pieces[0], *[each[:4].upper() + each[4:] for each in pieces[1:]]])


def for_scripts(text: str) -> str:
    return "".join([f"\\u{ord(each):04x}" if each in "<>&'\u2028\u2029" else each for each in text])


def twice(text: str, **options: bool) -> str:
    return json.dumps(json.dumps(text, **options)[1:-1], **options)[1:-1]  # type: ignore[arg-type]


@pytest.mark.parametrize("write", [write for _, write in PROGRAMS], ids=[name for name, _ in PROGRAMS])
@pytest.mark.parametrize("value", VALUES)
def test_what_a_program_makes_of_a_secret_is_a_form_of_it(value, write):
    assert write(value) in list_secret_forms(value)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("before", ["", "u", "ab", "abc", "user:"])
@pytest.mark.parametrize("after", ["", "\n", "\n\n"])
def test_in_the_base64_of_a_longer_text_no_more_than_four_bits_at_each_end_are_left(value, before, after):
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode((before + value + after).encode()).decode()
        length = len(value.encode())
        found = max((each for each in list_secret_forms(value) if each in whole), key=len)
        place = whole.index(found)
        assert place * 6 - len(before) * 8 <= 4
        assert (len(before) + length) * 8 - (place + len(found)) * 6 <= 4


@pytest.mark.parametrize("width", [64, 76])
def test_the_lines_of_wrapped_base64_are_forms(width):
    value = "".join([f"{number:03}" for number in range(40)])
    whole = base64.b64encode(value.encode()).decode()
    lines = [whole[place : place + width] for place in range(0, len(whole), width)]
    forms = list_secret_forms(value)
    assert [each for each in lines if each not in forms] == []


def test_the_forms_begin_with_the_longest_and_none_is_too_short():
    forms = list_secret_forms('a"b')
    assert [len(each) for each in forms] == sorted(map(len, forms), reverse=True)
    assert len(forms) == len({*forms})
    assert min(map(len, list_secret_forms("{\n  x\n}"))) >= 4


KEY = "-----BEGIN KEY-----\nMIIEvQIBADAN\nend\n  k5mgyr  \n-----END KEY-----\n"


def test_the_lines_of_a_key_are_secret_and_what_all_keys_have_is_not():
    assert list_unencoded_forms(KEY) == sorted(
        {KEY, KEY.strip(), "\r\n".join(KEY.splitlines()), "MIIEvQIBADAN", "k5mgyr"}
    )
    assert list_unencoded_forms(" token ") == [" token ", "token"]


def test_the_long_strings_in_json_are_secret_and_its_other_layouts():
    leaf, url = "0123456789abcdef", "https://example.org/0123456789abcdef"
    text = f"ä{leaf}\nabcde\nabcdef\n"
    document = {"key": leaf, "short": leaf[1:], "url": url, "more": [{"lines": text}], "number": 5}
    value = json.dumps(document, indent=4)
    layouts = {
        layout
        for ascii_only in (True, False)
        for layout in (
            json.dumps(document, ensure_ascii=ascii_only),
            json.dumps(document, ensure_ascii=ascii_only, separators=(",", ":")),
            json.dumps(document, ensure_ascii=ascii_only, indent=2),
        )
    }
    found = {*list_unencoded_forms(value)}
    assert layouts <= found
    lines = {each.strip() for each in value.splitlines() if len(each.strip()) >= 6}
    expected = {value, "\r\n".join(value.splitlines()), leaf, text, f"ä{leaf}", "abcdef"}
    assert found - layouts - {text.strip()} == expected | lines
    assert list_unencoded_forms('["0123456789abcdef"') == ['["0123456789abcdef"']  # which only looks like it


@pytest.mark.parametrize(
    ("value", "length"),
    [
        ("abcdefgh", None),
        ("abcdefghi", 8),
        ("sk-live-abcdefgh", 12),
        ("sk-live-abcd", None),
        ("sk-live-abcde", 12),
        ("ghp_abcdefgh", 8),
        ("abcdefghij_abcdefgh", 15),
        ("https://example.org/x", None),
        ("two words here", None),
        ('{"a":"bcdefghijk"}', None),
    ],
)
def test_the_beginning_of_a_token_is_secret_from_a_length_on(value, length):
    assert find_revealing_prefix_length(value) == length


def test_the_lines_of_a_value_with_two_lines_are_secret_each() -> None:
    value = "first-line\nsecond"
    assert list_unencoded_forms(value) == sorted({value, "first-line\r\nsecond", "first-line", "second"})


@pytest.mark.parametrize(("size", "is_form"), [(51, False), (52, True)])
def test_the_last_line_of_wrapped_base64_is_a_form_from_six_characters_on(size: int, is_form: bool) -> None:
    value = "".join([f"{number:03}" for number in range(40)])[:size]
    last = base64.b64encode(value.encode()).decode()[64:]
    assert len(last.rstrip("=")) == (6 if is_form else 4)
    assert (last in list_secret_forms(value)) is is_form
