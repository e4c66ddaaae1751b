"""The forms in which a value may turn up in what a tool returns. Above: `scrub.py`. Below: the standard library.

A token that was sent comes back in an error, encoded on the way: in base64 (of itself, or in the middle of something
longer, as in a header of Basic authentication), in a URL, in JSON, in JSON in JSON, in a `repr`, in a quoted command.
"""

import base64
import re
from collections.abc import Iterable, Iterator
from typing import Any

from .look import is_a
from .secret import SHORTEST

SHORTEST_LINE = 6
"""Lines of a value that are shorter than this are not looked for on their own: `{`, `end`, `true`."""
SHORTEST_LEAF = 16
"""Texts in a value that is JSON are looked for on their own from this length on: a key in a service account."""
_WRAPPED = (64, 76)
"""Where programs break the lines of base64."""
_ARMOUR = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]+-----")
"""The first and the last line of a key are the same for all keys."""
_UNESCAPED = ("", "/", "!'()*", "/:", "!$&'()*+,;=:@/", "!$&'()*+,;=:@/?#[]~")
"""What the ways to write a URL leave as it is, besides letters, digits, `_`, `.`, `-` and `~`."""


def forms_of(value: str) -> list[str]:
    """Every text that gives the value away, the longest first."""
    forms = {form for piece in _pieces(value) for form in _written(piece)}
    forms.update(_base64_lines(value))
    return sorted((form for form in forms if len(form) >= SHORTEST), key=lambda form: (-len(form), form))


def _pieces(value: str) -> set[str]:
    """The value, and the parts of it that are secret on their own."""
    pieces = {value, value.strip()}
    lines = value.splitlines()
    if len(lines) > 1:
        pieces.add("\r\n".join(lines))
        pieces.update(each for line in lines if _is_telling(each := line.strip()))
    if value.lstrip()[:1] in {"{", "["}:
        pieces.update(_json_pieces(value))
    return pieces


def _is_telling(line: str) -> bool:
    return len(line) >= SHORTEST_LINE and _ARMOUR.fullmatch(line) is None


def _json_pieces(value: str) -> Iterator[str]:
    """The same JSON laid out differently, and the long texts in it."""
    import json

    try:
        document = json.loads(value)
        for ascii_only in (True, False):
            yield json.dumps(document, ensure_ascii=ascii_only)
            yield json.dumps(document, ensure_ascii=ascii_only, separators=(",", ":"))
            yield json.dumps(document, ensure_ascii=ascii_only, indent=2)
        for leaf in _leaves(document):
            if len(leaf) >= SHORTEST_LEAF and "://" not in leaf:
                yield leaf
                yield from filter(_is_telling, map(str.strip, leaf.splitlines()))
    except (ValueError, RecursionError):  # it only looks like JSON
        return


def _leaves(document: Any) -> Iterator[str]:
    if is_a(document, str):
        yield document
        return
    inner: Iterable[Any] = document.values() if is_a(document, dict) else document if is_a(document, list) else ()
    for each in inner:
        yield from _leaves(each)


def _written(text: str) -> set[str]:
    """One text in all the ways in which programs write it."""
    once = {text, *_escaped(text), *_quoted(text)}
    twice = {again for each in once for again in _json_escaped(each)}
    data = text.encode()
    return {*once, *twice, *_urls(text), *_base64(data), data.hex(), data.hex().upper()}


def _json_escaped(text: str) -> Iterator[str]:
    import json

    ascii_only = json.dumps(text)[1:-1]
    yield ascii_only
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    if "\\u" in ascii_only:
        yield re.sub(r"\\u[0-9a-f]{4}", lambda found: "\\u" + found[0][2:].upper(), ascii_only)


def _escaped(text: str) -> Iterator[str]:
    """As it stands in JSON (also where `/`, `<`, `>` and `&` are escaped) and in a `repr`."""
    for form in _json_escaped(text):
        yield form
        yield form.replace("/", "\\/")
        yield re.sub("[<>&'\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", form)
    yield repr(text)[1:-1]
    yield ascii(text)[1:-1]
    yield repr(text.encode())[2:-1]


def _quoted(text: str) -> Iterator[str]:
    """As it stands in a web page and in a command."""
    import html
    import shlex

    yield html.escape(text)
    yield html.escape(text, quote=False)
    yield shlex.quote(text).removeprefix("'").removesuffix("'")


def _urls(text: str) -> Iterator[str]:
    from urllib.parse import quote, quote_plus

    written = [quote(text, safe=unescaped) for unescaped in _UNESCAPED]
    for form in (*written, quote_plus(text), quote_plus(text, safe="/")):
        yield form
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), form)


def _base64(data: bytes) -> Iterator[str]:
    """Of the value itself, and what there is of it in the base64 of something longer, wherever in it the value begins.

    Six bits make a character. The one before the first and the one after the last that are the value's alone hold at
    most four bits of it, and are left.
    """
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(data).decode()
        yield whole
        yield whole.rstrip("=")
        for shift in range(3):
            encoded = encode(bytes(shift) + data).decode()
            yield encoded[-(-8 * shift // 6) : 8 * (shift + len(data)) // 6]


def _base64_lines(value: str) -> Iterator[str]:
    """Of a long value, as programs write it that break lines."""
    whole = base64.b64encode(value.encode()).decode()
    for width in _WRAPPED:
        if len(whole) > width:
            lines = [whole[at : at + width] for at in range(0, len(whole), width)]
            yield from (line for line in lines if len(line.rstrip("=")) >= SHORTEST_LINE)
