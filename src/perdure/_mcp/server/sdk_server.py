"""Connect a `ServedTools` to the MCP SDK: list its tools, pass calls on to it, and convert the results.

The SDK implements both generations of the protocol, with and without a handshake.
"""

import base64
from typing import Any, Final, cast

import mcp_types as types
import msgspec
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from perdure._core.schema.problems import Invalid
from perdure._core.values.error import UsageError
from perdure._core.values.jsonable import error_message
from perdure._core.values.message import Audio, Image, ResultPart, Text
from perdure._version import __version__

from .clients import TooManyCalls
from .tools import CallOutcome, OfferedTool, ReportProgress, ServedTools, parse_structured_result

TOO_MANY_CALLS: Final = -32050
"""The code of the error for a client that has reached a limit."""
_LIST_SECONDS: Final = 300
"""How long a client may keep the list of tools, which does not change while the server runs."""
_META_PREFIX: Final = "perdure/"

Context = ServerRequestContext[Any, Any]


def build_protocol_server(tools: ServedTools, *, name: str, local_client: str, instructions: str = "") -> Server[Any]:
    """Build the MCP SDK's server object, which lists and calls the tools of a `ServedTools`.

    `local_client` is the name of the client on stdio, which has no token; empty if every client has one.
    """
    listed = [_describe_tool(each) for each in tools.tools.values()]

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        offered = tools.tools.get(params.name)
        if offered is None:
            known = ", ".join(tools.tools)
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r}; available: {known}")
        report = _build_report(context) if (context.meta or {}).get("progress_token") is not None else None
        client = _find_client(context) or local_client
        if not client:  # the guard of the HTTP app lets no request through without one
            raise MCPError(types.INVALID_REQUEST, "this request has no token")
        try:
            outcome = await tools.call(client, params.name, dict(params.arguments or {}), report)
        except TooManyCalls as error:
            raise MCPError(TOO_MANY_CALLS, error_message(error)) from None
        except UsageError as error:
            raise MCPError(types.INVALID_PARAMS, error_message(error)) from None
        return build_call_result(outcome, offered)

    return Server(
        name,
        version=__version__,
        instructions=instructions or None,
        cache_hints={"tools/list": CacheHint(ttl_ms=_LIST_SECONDS * 1_000, scope="private")},
        get_tool_input_schema=lambda called: tools.tools[called].input_schema if called in tools.tools else None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def build_call_result(outcome: CallOutcome, offered: OfferedTool) -> types.CallToolResult:
    """Convert the outcome of a call to a result of the MCP SDK; with an output schema, also to structured content."""
    result = outcome.result
    content = [_translate_part(part) for part in result.content]
    structured, is_error = None, result.is_error
    if offered.output_schema is not None and not is_error:
        try:
            structured = parse_structured_result(result, offered.output_schema)
        except (Invalid, msgspec.DecodeError) as problem:
            is_error = True
            text = f"the result does not fit the output schema of the tool ({problem})"
            content.insert(0, types.TextContent(text=text))
    meta = {f"{_META_PREFIX}status": result.status.value, f"{_META_PREFIX}session": outcome.session_id}
    if result.labels:
        meta[f"{_META_PREFIX}labels"] = " ".join(result.labels)
    return types.CallToolResult(content=content, structured_content=structured, is_error=is_error, _meta=meta)


def _describe_tool(offered: OfferedTool) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=offered.is_read_only,
        destructive_hint=not offered.is_read_only,
        idempotent_hint=offered.is_idempotent,
        open_world_hint=offered.is_open_world,
    )
    return types.Tool(
        name=offered.name,
        description=offered.description,
        input_schema=dict(offered.input_schema),
        output_schema=None if offered.output_schema is None else dict(offered.output_schema),
        annotations=hints,
    )


def _translate_part(part: ResultPart) -> types.ContentBlock:
    if isinstance(part, Text):
        return types.TextContent(text=part.text)
    if not part.data:
        return types.TextContent(text=f"{part.media_type or 'content'}: {part.url or part.file_id or part.name}")
    data = base64.b64encode(part.data).decode()
    if isinstance(part, Image):
        return types.ImageContent(data=data, mime_type=part.media_type or "image/png")
    if isinstance(part, Audio):
        return types.AudioContent(data=data, mime_type=part.media_type or "audio/wav")
    uri = f"perdure:{part.name or 'content'}".replace(" ", "%20")
    blob = types.BlobResourceContents(uri=uri, blob=data, mime_type=part.media_type or "application/octet-stream")
    return types.EmbeddedResource(resource=blob)


def _find_client(context: Context) -> str | None:
    """Return the name of the token of a request; `None` on stdio. No header can set it."""
    scope = getattr(context.request, "scope", None)
    user = cast("dict[str, Any]", scope).get("user") if isinstance(scope, dict) else None
    return user.access_token.client_id if isinstance(user, AuthenticatedUser) else None


def _build_report(context: Context) -> ReportProgress:
    """Return the function that sends progress of the call to the client that made it."""
    count = 0

    async def report(text: str) -> None:
        nonlocal count
        count += 1
        await context.session.report_progress(float(count), None, text)

    return report
