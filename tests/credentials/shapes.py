"""Fifty secrets of many shapes, and the forms in which the tests look for them.

The forms are written out here once more, and not taken from `perdure._credentials.forms`: a form that is
forgotten there would be forgotten in the tests too.
"""

import base64
import functools
import html
import json
import random
import re
import shlex
import string
from urllib.parse import quote, quote_plus

import msgspec

SHORTEST_TELLING = 6


def _token(seed, length, alphabet=string.ascii_letters + string.digits):
    generator = random.Random(seed)
    return "".join(generator.choice(alphabet) for _ in range(length))


def _pem(kind, lines, seed):
    body = "\n".join(_token(seed + number, 64, string.ascii_letters + string.digits + "+/") for number in range(lines))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n"


def _account(seed, indent):
    key = {"kind": "account", "secret": _token(seed, 48), "key": _pem("PRIVATE KEY", 2, seed)}
    return json.dumps(key, indent=indent)


TOKENS = [
    *[f"sk-live-{_token(1, 24)}", f"ghp_{_token(2, 36)}", f"xoxb-{_token(3, 12)}-{_token(4, 12)}", _token(5, 16)],
    *[f"eyJ{_token(6, 30)}.eyJ{_token(7, 80)}.{_token(8, 43)}", _token(9, 40, "0123456789abcdef"), _token(10, 200)],
    *[_token(11, 8), _token(12, 4, string.ascii_uppercase + string.digits), "48151623", _token(13, 3000)],
]
QUOTED = [
    *['quo"ted"-' + _token(20, 6), "apo'strophe's-" + _token(21, 6), "both\"and'" + _token(22, 6)],
    *[
        "back\\slash\\" + _token(23, 6),
        "C:\\new\\table\\" + _token(24, 5),
        'end\\"' + _token(25, 6),
        "`tick`" + _token(26, 5),
    ],
    *["$(dollar)" + _token(27, 6), "a\tb" + _token(28, 6)],
]
UNICODE = [
    *["pässwörd-" + _token(30, 5), "пароль" + _token(31, 5), "密码密码" + _token(32, 4), "🔑🔒" + _token(33, 6)],
    *["e\u0301clair-" + _token(34, 5), "line\u2028sep" + _token(35, 5), "日本" + "語" * 9],
]
SPACED = [
    *[
        "correct horse battery " + _token(40, 5),
        "  padded both sides " + _token(41, 4) + "  ",
        "n-9w7\nl-1n3x\n" + _token(42, 9),
    ],
    *["cr-0xc1\r\nlf-0xa2\r\n" + _token(43, 9), "trailing newline " + _token(44, 6) + "\n"],
]
URLS = [
    *[
        "100%sure%20" + _token(50, 5),
        "a/b/c/" + _token(51, 6),
        "a+b=c&d=" + _token(52, 6),
        "?q#f[" + _token(53, 6) + "]",
    ],
    *["https://user:" + _token(54, 10) + "@host/x?y=z", "p@ss:w/rd" + _token(55, 5), "~tilde!*'()" + _token(56, 5)],
    *["<html>&amp;" + _token(57, 6), "%%%%" + _token(58, 6)],
]
BLOCKS = [
    *[_pem("PRIVATE KEY", 5, 60), _pem("RSA PRIVATE KEY", 12, 80), _pem("OPENSSH PRIVATE KEY", 3, 100)],
    *["user: anna\npassword: " + _token(120, 12), "ONE=" + _token(121, 9) + "\nTWO=" + _token(122, 9)],
]
DOCUMENTS = [
    *[_account(130, None), _account(140, 2), '{"token":"' + _token(150, 20) + '","scopes":["a","b"]}'],
    '["' + _token(151, 18) + '", {"n": 1}]',
]
SECRETS = {
    f"secret_{place}": value
    for place, value in enumerate([*TOKENS, *QUOTED, *UNICODE, *SPACED, *URLS, *BLOCKS, *DOCUMENTS])
}
"""Fifty of them, by name."""


def core_of_base64(value, before):
    """The characters of the base64 of something longer that are the value's alone."""
    encoded = base64.b64encode(before + value.encode()).decode()
    return encoded[-(-8 * len(before) // 6) : 8 * (len(before) + len(value.encode())) // 6]


@functools.cache
def forms(value):
    """What must not be found anywhere, by the name of the form."""
    data = value.encode()
    found = {
        "raw": value,
        "base64": base64.b64encode(data).decode().rstrip("="),
        "base64 for URLs": base64.urlsafe_b64encode(data).decode().rstrip("="),
        "base64 after one byte": core_of_base64(value, b"x"),
        "base64 after two bytes": core_of_base64(value, b"xx"),
        "URL": quote(value, safe=""),
        "URL path": quote(value),
        "URL in small letters": re.sub("%..", lambda found: found[0].lower(), quote(value, safe="")),
        "form": quote_plus(value),
        "JSON": json.dumps(value)[1:-1],
        "JSON in UTF-8": json.dumps(value, ensure_ascii=False)[1:-1],
        "JSON twice": json.dumps(json.dumps(value)[1:-1])[1:-1],
        "JSON twice in UTF-8": json.dumps(json.dumps(value, ensure_ascii=False)[1:-1], ensure_ascii=False)[1:-1],
        "repr": repr(value)[1:-1],
        "repr of bytes": repr(data)[2:-1],
        "hex": data.hex(),
        "HEX": data.hex().upper(),
        "HTML": html.escape(value),
        "shell": shlex.quote(value).strip("'"),
    }
    lines = [line.strip() for line in value.splitlines() if not line.startswith("-----")]
    if len(lines) > 1:
        telling = [line for line in lines if len(line) >= SHORTEST_TELLING]
        found |= {f"line {place}": line for place, line in enumerate(telling, 1)}
    return found


def hits(haystack, secrets=None):
    """Which secrets, in which form, are in a text or in bytes."""
    text = haystack.decode("utf-8", "replace") if isinstance(haystack, bytes) else haystack
    return [
        (name, form)
        for name, value in (secrets or SECRETS).items()
        for written, form in {written: form for form, written in forms(value).items()}.items()
        if written in text
    ]


def all_fields(outcome):
    """Every field of an outcome as text: its own `repr` leaves most of them out."""
    return repr(msgspec.structs.asdict(outcome))
