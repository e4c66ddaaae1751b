"""Ask people the questions of MCP servers (elicitation): as a form in a display slot, answered from any process."""

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from perdure.core.display_slot import Askable
from perdure.core.error import ConfigError, NotAnswered
from perdure.core.schema import check_json_schema

from .listed_tool import clean_text

if TYPE_CHECKING:
    import mcp_types

    from perdure.core.tool_context import ToolContext

_MAX_QUESTION: Final = 2_000
_DECLINE: Final = "decline"
_NOT_FREE: Final = frozenset({"email", "uri", "date", "date-time"})
"""Formats of texts that are no secrets."""
_BETWEEN_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+")
_SECRET: Final = re.compile(
    r"\b(?:pass ?(?:word|code|phrase|key)s?|\w*passw(?:d|ord|ort)|pwd|pin|otp|secret|credentials?|token|recovery|cvv"
    r"|cvc|ssn|(?:api|access|private|secret|signing|ssh|license) keys?|one time|2fa|mfa|card number|kennwort"
    r"|mot de passe|contrase\w*a|senha)\b"
)
"""Words of what nobody should type into a form whose answer is stored."""
_log = logging.getLogger("perdure")


class ElicitationForm(Askable[dict[str, Any]], frozen=True):
    """Question of an MCP server to people: a form with fields to fill in. The text names the server."""

    renderer = "form"

    question: str
    schema: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The question as text."""
        return self.question

    @property
    def input(self) -> Any:
        """The schema of the fields."""
        return {"question": self.question, "schema": dict(self.schema), "initial": None}

    @property
    def output(self) -> Mapping[str, Any]:
        """The schema of the answer."""
        return self.schema


class ElicitationLink(Askable[bool], frozen=True):
    """Question of an MCP server to people: open a URL, and then confirm that it was done."""

    renderer = "confirm"

    question: str

    @property
    def text(self) -> str:
        """The question as text."""
        return self.question

    @property
    def input(self) -> Any:
        """The question with its two answers."""
        return {"question": self.question, "yes": "I have done it", "no": "No"}

    @property
    def output(self) -> Mapping[str, Any]:
        """The schema of the answer."""
        return {"type": "boolean"}


class CallElicitationAnswerer:
    """Asks people the questions that an MCP server has during one tool call, one at a time, and returns the answers."""

    def __init__(self, server: str, context: "ToolContext[Any]") -> None:
        self._server = server
        self._context = context
        self._asking = asyncio.Lock()

    @property
    def run_id(self) -> str:
        """The run of the call."""
        return self._context.run_id

    async def answer(self, params: "mcp_types.ElicitRequestParams") -> "mcp_types.ElicitResult":
        """Ask people, and return their answer; `cancel` if there is none, `decline` for what cannot be asked."""
        import mcp_types

        asked = build_elicitation_question(self._server, params)
        if isinstance(asked, ElicitationForm) and asks_for_secret(asked):
            _log.warning(
                "MCP server %r asks for a password or another secret in a form, which is declined: the answer would be "
                "stored in the session. Servers have to ask for it at a URL of their own; or give it to the server in "
                "its settings (env, headers), or with perdure mcp login",
                self._server,
            )
            return mcp_types.ElicitResult(action=_DECLINE)
        if asked is None:
            return mcp_types.ElicitResult(action=_DECLINE)
        async with self._asking:
            try:
                answer: Any = await self._context.ask(asked)
            except NotAnswered:
                return mcp_types.ElicitResult(action="cancel")
        if isinstance(asked, ElicitationLink):
            return mcp_types.ElicitResult(action="accept" if answer is True else _DECLINE)
        return mcp_types.ElicitResult(action="accept", content=answer)


def build_elicitation_question(
    server: str, params: "mcp_types.ElicitRequestParams"
) -> ElicitationForm | ElicitationLink | None:
    """Build the question to people from a server's request; `None` if its form is invalid, or its URL is unsafe."""
    message = clean_text(params.message)[:_MAX_QUESTION]
    url = getattr(params, "url", None)
    if url is not None:
        if not isinstance(url, str) or not is_safe_link(url):
            return None
        return ElicitationLink(f"The MCP server {server!r} asks you to open {url} in a browser: {message}")
    schema: Any = getattr(params, "requested_schema", None)
    try:
        checked = check_json_schema(cast("dict[str, Any]", schema)) if isinstance(schema, dict) else None
    except (ConfigError, TypeError, ValueError):
        return None
    if checked is None or checked.get("type", "object") != "object":
        return None
    return ElicitationForm(f"The MCP server {server!r} asks: {message}", {"type": "object", **checked})


def asks_for_secret(form: ElicitationForm) -> bool:
    """Return True if a form has a field for a password or another secret, by what the field and the question say.

    Answers are stored in the session, and the protocol forbids servers to ask for secrets in a form.
    """
    fields = list(_list_text_fields(form.schema))
    said = [form.question] if fields else []
    for name, field in fields:
        if field.get("format") == "password" or field.get("writeOnly") is True:
            return True
        said += [name, *[str(field.get(key, "")) for key in ("title", "description")]]
    return any(_SECRET.search(_BETWEEN_WORDS.sub(" ", each).lower()) for each in said)


def _list_text_fields(schema: Any, name: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield name and schema of each part of a schema that takes a text of any kind; it has been checked before."""
    if not isinstance(schema, Mapping):
        return
    field = cast("Mapping[str, Any]", schema)
    kinds: Any = field.get("type", "string" if name else "object")
    is_text = "string" in (kinds if isinstance(kinds, list) else [kinds])
    if is_text and "enum" not in field and "const" not in field and field.get("format") not in _NOT_FREE:
        yield name, field
    properties: Any = field.get("properties")
    for inner, each in cast("Mapping[str, Any]", properties).items() if isinstance(properties, Mapping) else ():
        yield from _list_text_fields(each, inner)
    for key in ("items", "additionalProperties"):
        yield from _list_text_fields(field.get(key), name)
    for key in ("anyOf", "oneOf", "allOf"):
        parts: Any = field.get(key)
        for each in cast("list[object]", parts) if isinstance(parts, list) else ():
            yield from _list_text_fields(each, name)


def is_safe_link(url: str) -> bool:
    """Return True if a URL is safe to show to people as a link: https, or http on this machine.

    An address with another scheme, such as `javascript:` or `file:`, or with characters that a shell would read, is
    refused.
    """
    from urllib.parse import urlsplit

    if not url.isascii() or not url.isprintable() or any(each in url for each in " \"'`<>\\^{}|$;"):
        return False
    try:
        parts = urlsplit(url)
        local = parts.hostname in {"localhost", "127.0.0.1", "::1"}
    except ValueError:
        return False
    return (
        bool(parts.hostname)
        and "@" not in parts.netloc
        and (parts.scheme == "https" or (parts.scheme == "http" and local))
    )
