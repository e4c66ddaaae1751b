"""Build `Tool`s that call the tools of an MCP server: their effect, permission and results.

Hints of a server are claims. They make a tool stricter at once, and less strict only if the owner says so.
"""

from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from perdure.core.error import ToolError
from perdure.core.interrupted_run_repair import READ_IS_REPEATABLE
from perdure.core.message import Status, Text, ToolResult
from perdure.core.provenance import UNTRUSTED_LABEL
from perdure.core.schema import build_parameters_from_json_schema
from perdure.core.tool import Effect, Tool, ToolContext
from perdure.core.unsuccessful_results import MAY_HAVE_HAPPENED

from .client import CallTimedOut, FateUnknown, McpClient
from .elicitation import CallElicitationAnswerer
from .listed_tool import ListedTool, build_offered_name, clean_text
from .result_conversion import convert_resource, convert_tool_result
from .server_settings import McpServer

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
