"""The forms in which a secret may appear in text: plain, parts of it, and encodings such as base64, URL or JSON.

A token that was sent may be returned in an error, encoded on the way: in base64 (alone, or inside a longer text, as in
a header of Basic authentication), in a URL, in JSON, in JSON in JSON, in a `repr`, in a quoted command.
"""

import base64
import re
from collections.abc import Iterable, Iterator
from typing import Any

from .isinstance_without_narrowing import is_a
from .secret import MIN_SECRET_LENGTH

SHORTEST_LINE = 6
"""Shorter lines of a value are not searched for on their own: `{`, `end`, `true`."""
SHORTEST_LEAF = 16
"""Strings of at least this length in a JSON value are searched for on their own: a key in a service account."""
SHORTEST_START = 8
"""Length of the shortest beginning of a value that is redacted on its own."""
_LABEL = re.compile(r"[A-Za-z]{2,10}[-_](?:[A-Za-z]{2,6}[-_])?")
"""First part of many tokens, which says what they are: `sk-live-`, `ghp_`."""
_TOKEN = re.compile(r"[^\s{}\[\]\"'<>]+")
_WRAPPED = (64, 76)
"""Line lengths at which programs wrap base64."""
_ARMOUR = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]+-----")
"""First and last lines of a key, which are the same for all keys."""
_UNESCAPED = ("", "/", "!'()*", "/:", "!$&'()*+,;=:@/", "!$&'()*+,;=:@/?#[]~")
"""Characters that URL encodings leave as they are, besides letters, digits, `_`, `.`, `-` and `~`."""


def list_secret_forms(value: str) -> list[str]:
    """Return every text that would reveal a secret: its encodings and its secret parts, the longest first."""
    forms = {form for piece in _list_secret_parts(value) for form in _list_encodings(piece)}
    forms.update(_yield_base64_lines(value))
    return sorted((form for form in forms if len(form) >= MIN_SECRET_LENGTH), key=lambda form: (-len(form), form))


def list_unencoded_forms(value: str) -> list[str]:
    """Return the unencoded forms of a secret: the value and its secret parts, with and without blanks around them."""
    parts = _list_secret_parts(value)
    return sorted({*parts, *[each.strip() for each in parts]})


def find_revealing_prefix_length(value: str) -> int | None:
    """Return the length from which a prefix of a secret is redacted too; `None` if a prefix may be ordinary text.

    A token is one word. In others, such as a URL, the first words are often those of many texts.
    """
    label = _LABEL.match(value)
    least = max(SHORTEST_START, 0 if label is None else label.end() + 4)
    return least if len(value) > least and _TOKEN.fullmatch(value) and "://" not in value else None


def _list_secret_parts(value: str) -> set[str]:
    """Return the secret, and the parts of it that are secret by themselves."""
    pieces = {value, value.strip()}
    lines = value.splitlines()
    if len(lines) > 1:
        pieces.add("\r\n".join(lines))
        pieces.update(each for line in lines if _is_searchable_line(each := line.strip()))
    if value.lstrip()[:1] in {"{", "["}:
        pieces.update(_yield_json_parts(value))
    return pieces


def _is_searchable_line(line: str) -> bool:
    return len(line) >= SHORTEST_LINE and _ARMOUR.fullmatch(line) is None


def _yield_json_parts(value: str) -> Iterator[str]:
    """Yield the secret's JSON in other layouts, and the long strings in it."""
    import json

    try:
        document = json.loads(value)
        for ascii_only in (True, False):
            yield json.dumps(document, ensure_ascii=ascii_only)
            yield json.dumps(document, ensure_ascii=ascii_only, separators=(",", ":"))
            yield json.dumps(document, ensure_ascii=ascii_only, indent=2)
        for leaf in _yield_strings(document):
            if len(leaf) >= SHORTEST_LEAF and "://" not in leaf:
                yield leaf
                yield from filter(_is_searchable_line, map(str.strip, leaf.splitlines()))
    except (ValueError, RecursionError):  # it only looks like JSON
        return


def _yield_strings(document: Any) -> Iterator[str]:
    if is_a(document, str):
        yield document
        return
    inner: Iterable[Any] = document.values() if is_a(document, dict) else document if is_a(document, list) else ()
    for each in inner:
        yield from _yield_strings(each)


def _list_encodings(text: str) -> set[str]:
    """Return the encodings of a text that programs commonly write."""
    once = {text, *_yield_escapes(text), *_yield_quotings(text)}
    twice = {again for each in once for again in _yield_json_escapes(each)}
    data = text.encode()
    return {*once, *twice, *_yield_url_encodings(text), *_yield_base64(data), data.hex(), data.hex().upper()}


def _yield_json_escapes(text: str) -> Iterator[str]:
    import json

    ascii_only = json.dumps(text)[1:-1]
    yield ascii_only
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    if "\\u" in ascii_only:
        yield re.sub(r"\\u[0-9a-f]{4}", lambda found: "\\u" + found[0][2:].upper(), ascii_only)


def _yield_escapes(text: str) -> Iterator[str]:
    """Yield a text escaped as in JSON (also with `/`, `<`, `>` and `&` escaped) and in a `repr`."""
    for form in _yield_json_escapes(text):
        yield form
        yield form.replace("/", "\\/")
        yield re.sub("[<>&'\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", form)
    yield repr(text)[1:-1]
    yield ascii(text)[1:-1]
    yield repr(text.encode())[2:-1]


def _yield_quotings(text: str) -> Iterator[str]:
    """Yield a text escaped as in HTML and in a shell command."""
    import html
    import shlex

    yield html.escape(text)
    yield html.escape(text, quote=False)
    yield shlex.quote(text).removeprefix("'").removesuffix("'")


def _yield_url_encodings(text: str) -> Iterator[str]:
    from urllib.parse import quote, quote_plus

    written = [quote(text, safe=unescaped) for unescaped in _UNESCAPED]
    for form in (*written, *map(quote, written), quote_plus(text), quote_plus(text, safe="/")):
        yield form
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), form)


def _yield_base64(data: bytes) -> Iterator[str]:
    """Yield the base64 of the value, and its part in the base64 of a longer text, at each alignment.

    Each character has six bits. The characters at both ends that are shared with other bytes contain at most four bits
    of the value, and are left out.
    """
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(data).decode()
        yield whole
        yield whole.rstrip("=")
        for shift in range(3):
            encoded = encode(bytes(shift) + data).decode()
            yield encoded[-(-8 * shift // 6) : 8 * (shift + len(data)) // 6]


def _yield_base64_lines(value: str) -> Iterator[str]:
    """Yield the lines of the base64 of a long value, as programs wrap them."""
    whole = base64.b64encode(value.encode()).decode()
    for width in _WRAPPED:
        if len(whole) > width:
            lines = [whole[at : at + width] for at in range(0, len(whole), width)]
            yield from (line for line in lines if len(line.rstrip("=")) >= SHORTEST_LINE)
