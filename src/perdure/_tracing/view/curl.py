"""Turn a traced HTTP request into a curl command that sends it again; the API key is an environment variable.

A trace may come from somebody else: nothing in it is an option of curl, or the name of a file that curl reads.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure._core.values import checks
from perdure._core.values.jsonable import to_jsonable
from perdure._io.http.tap import MASK, TappedRequest, mask_headers, mask_url
from perdure._tracing.collect.entry import RawRequest

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_WEB_ADDRESS: Final = re.compile(r"https?://", re.IGNORECASE).match
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_SKIPPED: Final = frozenset({"host", "content-length", "accept-encoding", "connection", "user-agent"})


def to_curl(
    request: "RawRequest | TappedRequest | Mapping[str, Any]",
    *,
    base_url: str = "",
    path: str = "/chat/completions",
    api_key_env: str = "API_KEY",
    stream: bool | None = None,
    pretty: bool = True,
) -> str:
    """Return a curl command that sends a request to a model again. It never contains the API key, only `$API_KEY`.

    Args:
        request: A request from a trace or a tap, or the body of one as JSON values.
        base_url: URL of the API, for a body alone; a request of a trace has its own.
        path: Path that is added to `base_url`.
        api_key_env: Name of the variable with the key.
        stream: True or False to set `stream` in the body; `None` leaves it as it is.
        pretty: True to print the body of the request over several lines.
    """
    checks.require_text("to_curl", "base_url", base_url)
    checks.require_text("to_curl", "path", path)
    if not isinstance(api_key_env, str) or not _VARIABLE(api_key_env):
        checks.raise_config_error(
            "to_curl", "api_key_env", api_key_env, "give the name of a variable, such as 'OPENAI_API_KEY'"
        )
    if isinstance(request, Mapping):
        if not base_url:
            checks.raise_config_error("to_curl", "base_url", base_url, "a body alone needs the URL of the API")
        url, body = f"{base_url.rstrip('/')}/{path.lstrip('/')}", msgspec.json.encode(to_jsonable(dict(request)))
        headers: Mapping[str, str] = {"content-type": "application/json", "authorization": f"Bearer {MASK}"}
    elif isinstance(request, RawRequest | TappedRequest):
        raw = request.body
        url, body, headers = request.url, raw if isinstance(raw, bytes) else raw.encode(), request.headers
    else:
        checks.raise_config_error("to_curl", "request", request, "give a raw request of a trace, or a body")
    return _join_command(mask_url(url), mask_headers(headers), _format_body(body, stream, pretty=pretty), api_key_env)


def _join_command(url: str, headers: Mapping[str, str], body: str, variable: str) -> str:
    address = url if _WEB_ADDRESS(url) else f"http://{url.lstrip('-')}"
    lines = [f"curl -N {_quote(address, variable)}"]
    for name, text in headers.items():
        if name.lower() not in _SKIPPED and _HEADER(name) and text.isprintable():
            is_bearer = name.lower() == "authorization" and text == MASK
            lines.append(f"-H {_quote(f'{name}: Bearer {MASK}' if is_bearer else f'{name}: {text}', variable)}")
    lines.append(f"--data-raw {shlex.quote(body)}")  # of --data-binary '@…' the rest is a file
    return " \\\n  ".join(lines)


def _quote(text: str, variable: str) -> str:
    """Quote a text for a shell; a masked secret in it becomes the variable of the key."""
    return f'"${{{variable}}}"'.join([shlex.quote(part) if part else "" for part in text.split(MASK)])


def _format_body(body: bytes, stream: bool | None, *, pretty: bool) -> str:  # noqa: FBT001 - three values, by place
    try:
        read = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body.decode("utf-8", "replace")
    if stream is not None and isinstance(read, dict):
        read["stream"] = stream
    encoded = msgspec.json.encode(read)
    return (msgspec.json.format(encoded, indent=2) if pretty else encoded).decode()
