"""Build `Tool`s that call the tools of an MCP server: their effect, permission, questions to people and results."""

import asyncio
import base64
import binascii
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from perdure._core.log.repair import READ_IS_REPEATABLE
from perdure._core.schema.parameters import build_parameters_from_json_schema, check_json_schema, check_value
from perdure._core.schema.problems import Invalid
from perdure._core.tools.context import ToolContext
from perdure._core.tools.results import MAY_HAVE_HAPPENED
from perdure._core.tools.slots import Askable
from perdure._core.tools.tool import Effect, Tool, ToolOutput
from perdure._core.values.error import ConfigError, NotAnswered, ToolError
from perdure._core.values.message import Audio, Document, Image, ResultPart, Status, Text, ToolResult
from perdure._core.values.provenance import UNTRUSTED_LABEL
from perdure._mcp.settings import McpServer

from .client import CallTimedOut, FateUnknown, McpClient
from .listing import ListedTool, build_offered_name, clean_text

if TYPE_CHECKING:
    import mcp_types


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


MAX_MEDIA_BYTES: Final = 8 * 1024 * 1024
"""Bytes of one picture, recording or file in a result."""
_MAX_URI: Final = 2_000


def convert_tool_result(tool: ListedTool, result: "mcp_types.CallToolResult") -> ToolOutput:
    """Convert the result of an MCP tool to a `ToolOutput`: its texts and media, or else its structured content as JSON.

    Structured content that does not match the tool's own schema is an error. A user interface gets it as data.
    """
    parts = [part for each in result.content for part in _convert_content(each)]
    structured = result.structured_content
    is_error = bool(result.is_error)
    if structured is not None and tool.output_schema is not None and not is_error:
        try:
            check_value(structured, tool.output_schema)
        except Invalid as problem:
            parts.insert(
                0, Text(f"[The structured result does not match the tool's schema: {clean_text(str(problem))}]")
            )
            is_error = True
    if structured is not None and not parts:
        parts = [Text(msgspec.json.encode(structured).decode())]
    return ToolOutput(content=parts or "(no content)", render=structured, is_error=is_error)


def convert_resource(contents: Any) -> list[ResultPart]:
    """Convert the contents of an MCP resource to message parts: a text, or a media file."""
    uri = clean_text(str(getattr(contents, "uri", "")))[:_MAX_URI]
    text = getattr(contents, "text", None)
    if isinstance(text, str):
        return [Text(text)]
    media_type = str(getattr(contents, "mime_type", "") or "application/octet-stream")
    return [_decode_media(getattr(contents, "blob", ""), media_type, uri)]


def _convert_content(block: Any) -> list[ResultPart]:
    kind = getattr(block, "type", "")
    if kind == "text":
        return [Text(block.text)]
    if kind in {"image", "audio"}:
        return [_decode_media(block.data, str(block.mime_type), kind)]
    if kind == "resource":
        return convert_resource(block.resource)
    if kind == "resource_link":  # never followed: the model may ask for it by its address
        return [Text(f"[resource {clean_text(str(block.uri))[:_MAX_URI]} ({clean_text(str(block.name))[:200]})]")]
    return [Text(f"[content of the unknown kind {clean_text(str(kind))[:80]!r}]")]


def _decode_media(data: object, media_type: str, name: str) -> ResultPart:
    """Return base64 data as a part; a note in its place if it is too large or broken."""
    if not isinstance(data, str) or len(data) > MAX_MEDIA_BYTES * 4 // 3 + 4:
        return Text(f"[{name} of type {clean_text(media_type)[:80]} was left out: it is too large]")
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return Text(f"[{name} of type {clean_text(media_type)[:80]} was left out: it is no base64]")
    family = media_type.partition("/")[0]
    if family == "image":
        return Image(data=content, media_type=media_type)
    if family == "audio":
        return Audio(data=content, media_type=media_type)
    return Document(data=content, media_type=media_type)


ACTION: Final = "mcp_call"
"""The action of all tools of MCP servers, for permission rules; the target is `server.tool`."""
IDEMPOTENCY_KEY: Final = "perdure/idempotency-key"
"""Name in the metadata of a call under which a server gets the key that is the same for each attempt."""
_MAX_PROGRESS_TEXT: Final = 500

ClientGetter = Callable[[ToolContext[Any], str], Awaitable[McpClient]]
"""Returns the client of a server, given by its name, for the run of a call."""


def is_offered(server: McpServer, tool: str) -> bool:
    """Return True if the settings of an MCP server (`include`, `exclude`) let the model see this tool."""
    included = not server.include or any(fnmatchcase(tool, each) for each in server.include)
    return included and not any(fnmatchcase(tool, each) for each in server.exclude)


def build_permission_target(server: str, tool: str) -> str:
    """Return the name of an MCP tool in permission rules: `server.tool`. A dot in a server's name becomes `%2E`.

    So a rule for the server `a` is none for the server `a.b`, and no two tools have the same target.
    """
    return f"{server.replace('.', '%2E')}.{tool}"


def choose_effect(server: McpServer, tool: ListedTool) -> Effect:
    """Return the effect of an MCP tool (such as `read`): from the server's settings, or from its hints if trusted.

    A hint that contradicts the owner makes the tool stricter.
    """
    says_read = tool.get_hint("readOnlyHint") is True and tool.get_hint("destructiveHint") is not True
    says_write = tool.get_hint("readOnlyHint") is False or tool.get_hint("destructiveHint") is True
    owners_word = server.effects.get(tool.name)
    if owners_word == "read":
        return "at_most_once" if says_write else "read"
    if owners_word == "idempotent":
        return "at_most_once" if tool.get_hint("idempotentHint") is False else "idempotent"
    if owners_word is not None:
        return owners_word
    if server.trust_hints and says_read:
        return "read"
    return "idempotent" if server.trust_hints and tool.get_hint("idempotentHint") is True else "at_most_once"


def build_tool(server: McpServer, listed: ListedTool, get_client: ClientGetter) -> Tool[..., Any]:
    """Build the `Tool` that calls a tool of an MCP server."""
    effect = choose_effect(server, listed)
    target = build_permission_target(server.name, listed.name)

    async def call(arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        client = await get_client(context, server.name)

        def report(progress: float, total: float | None, message: str | None) -> None:
            text = None if message is None else clean_text(message[:_MAX_PROGRESS_TEXT])
            context.emit({"progress": progress, "total": total, "message": text})

        try:
            result = await client.call_tool(
                listed.name,
                arguments,
                is_read=effect == "read",
                expected=listed,
                on_progress=report,
                answerer=CallElicitationAnswerer(server.name, context),
                meta={IDEMPOTENCY_KEY: context.idempotency_key} if effect == "idempotent" else None,
            )
        except FateUnknown as problem:
            return _build_unknown_result(context, problem, effect)
        return convert_tool_result(listed, result)

    return Tool(
        name=listed.offered_name,
        description=listed.shown_description,
        parameters=listed.parameters,
        call=call,
        effect=effect,
        permission=server.permission and effect != "read",
        action=ACTION,
        target=lambda _: target,
        source=f"mcp:{server.name}",
        asks_first=effect == "read",  # so a question of the server is answered days later, in another process
        labels=(UNTRUSTED_LABEL,),
        sends=not (server.trust_hints and listed.get_hint("openWorldHint") is False),
    )


def _build_unknown_result(context: ToolContext[Any], problem: FateUnknown, effect: Effect) -> ToolResult:
    """Return the result of a call that may or may not have been carried out."""
    if effect == "read":
        raise ToolError(f"{problem}. {READ_IS_REPEATABLE}") from problem
    status = Status.TIMED_OUT if isinstance(problem, CallTimedOut) else Status.UNKNOWN
    return ToolResult(context.call_id, context.name, (Text(f"{problem}. {MAY_HAVE_HAPPENED}"),), status)


def build_resource_tools(server: McpServer, get_client: ClientGetter) -> list[Tool[..., Any]]:
    """Build the two tools by which a model lists and reads the resources of an MCP server."""

    async def list_resources(_: dict[str, Any], context: ToolContext[Any]) -> Any:
        found = await (await get_client(context, server.name)).list_resources()
        return [{"uri": str(each.uri), "name": each.name, "description": each.description or ""} for each in found]

    async def read_resource(arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        result = await (await get_client(context, server.name)).read_resource(arguments["uri"])
        return [part for each in result.contents for part in convert_resource(each)] or "(no content)"

    uri = {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}
    return [
        _build_read_tool(server, "list_resources", "List the resources of the server.", {}, list_resources),
        _build_read_tool(server, "read_resource", "Read a resource of the server by its address.", uri, read_resource),
    ]


def _build_read_tool(
    server: McpServer,
    name: str,
    description: str,
    schema: Mapping[str, Any],
    call: Callable[[dict[str, Any], ToolContext[Any]], Awaitable[Any]],
) -> Tool[..., Any]:
    return Tool(
        name=build_offered_name(server.name, name),
        description=description,
        parameters=build_parameters_from_json_schema(dict(schema)),
        call=call,
        effect="read",
        permission=server.permission and not server.trust_hints,
        action=ACTION,
        target=lambda _: build_permission_target(server.name, name),
        source=f"mcp:{server.name}",
        labels=(UNTRUSTED_LABEL,),
        sends=True,
    )
