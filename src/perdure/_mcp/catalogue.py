"""On-demand MCP servers: the model starts with one tool, `discover_tools`, which finds and activates servers.

A server is connected to when it is activated, and not before. The log has which servers a session has activated, so
their tools are there again in later runs, after a resume and in another process.
"""

import asyncio
import logging
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, cast, get_args

from msgspec import Struct

from perdure._core.run.calling_run import get_run_of_call
from perdure._core.run.run import Run
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool, tool
from perdure._core.values import checks
from perdure._core.values.error import ConfigError, NotAnswered, ToolError
from perdure._core.values.provenance import UNTRUSTED_LABEL
from perdure._people.kinds import Choice, Confirm, Option
from perdure._runtime.agent.extension import Extension

from .pins import PinFile
from .servers import HeaderResolver, McpServers
from .settings import McpServer

if TYPE_CHECKING:
    import httpx2

    from perdure._runtime.session.session import Session

DiscoveryPolicy: TypeAlias = Literal["interactive", "best", "defer"]
"""How a server is activated: a person is asked each time; the best match is taken; or the host program decides."""

ChooseServer: TypeAlias = Callable[
    [str, "Sequence[CatalogueEntry]", ToolContext[Any]], "str | Awaitable[str | None] | None"
]
"""Function of the host that returns the name of the server to activate, or `None` for none; plain or async."""

TOOL_NAME: Final = "discover_tools"
ACTIVE_SERVERS: Final = "mcp_active_servers"
"""Name of the value in the log that has the names of the activated servers."""
REQUESTED_SERVERS: Final = "mcp_requested_servers"
"""Name of the value in the log that has what the model asked for, when the host decides later."""
_MOST_SHOWN: Final = 10
_MAX_SHOWN_NEED: Final = 200
_WORD: Final = re.compile(r"[^\W_]{2,}")

logger = logging.getLogger("perdure")


class CatalogueEntry(Struct, frozen=True, kw_only=True):
    """An MCP server in an `McpCatalogue`, with a description of what it is good for."""

    server: McpServer
    description: str
    """What its tools do, for the model and for people."""
    tags: tuple[str, ...] = ()
    """Further search terms for it."""

    def __post_init__(self) -> None:
        if not isinstance(self.server, McpServer):
            checks.raise_config_error("CatalogueEntry", "server", self.server, "give an McpServer(…)")
        checks.require_text("CatalogueEntry", "description", self.description, non_empty=True)
        if isinstance(self.tags, str) or not all(isinstance(each, str) for each in self.tags):
            checks.raise_config_error("CatalogueEntry", "tags", self.tags, "give a list of texts")

    @property
    def name(self) -> str:
        """The name of the server."""
        return self.server.name

    @property
    def how_reached(self) -> str:
        """The command that starts the server, or its URL, as shown to a person for approval."""
        server = self.server
        return " ".join([server.command, *server.args]) if server.transport == "stdio" else server.url


class McpCatalogue:
    """A catalogue of MCP servers that an agent can activate when it needs them. `extension` adds it to an agent."""

    def __init__(
        self,
        *entries: CatalogueEntry,
        policy: DiscoveryPolicy = "interactive",
        choose: ChooseServer | None = None,
        pins: "str | os.PathLike[str] | PinFile | None" = None,
        headers: HeaderResolver | None = None,
        login: "Callable[[McpServer], httpx2.Auth | None] | None" = None,
    ) -> None:
        """Offer these servers.

        Args:
            entries: The servers, each with another name.
            policy: `interactive` asks a person before every activation; `best` activates the best match; `defer` leaves
                it to the host: to `choose`, or to `activate` at any later time.
            choose: The host's decision, for `defer`.
            pins: As for `McpServers`.
            headers: As for `McpServers`.
            login: As for `McpServers`.
        """
        checks.require_one_of("McpCatalogue", "policy", policy, get_args(DiscoveryPolicy))
        for each in entries:
            if not isinstance(each, CatalogueEntry):
                checks.raise_config_error("McpCatalogue", "entries", each, "give CatalogueEntry(…)")
        if choose is not None:
            checks.require_callable("McpCatalogue", "choose", choose)
            if policy != "defer":
                raise ConfigError(f"McpCatalogue(policy={policy!r}): choose=… is for policy='defer' alone")
        self._servers = McpServers(*[each.server for each in entries], pins=pins, headers=headers, login=login)
        self._resolve_headers = headers
        self.entries = {each.name: each for each in entries}
        """The entries by name."""
        self.policy: DiscoveryPolicy = policy
        """How a server is activated."""
        self._choose = choose
        self._users = 0
        self.extension = Extension(
            name="mcp_catalogue", tools=[self._build_tool()], between_turns=[self._offer_tools], lifespan=self._open
        )
        """The extension for `Agent(extensions=[…])`."""

    # -- the host ------------------------------------------------------------------------------------------------------

    async def list_active(self, session: "Session[Any]") -> list[str]:
        """Return the names of the servers that a session has activated."""
        return _read_names(await session.kept(ACTIVE_SERVERS))

    async def activate(self, session: "Session[Any]", name: str) -> None:
        """Activate a server for a session, from its next turn on. Raises `ConfigError` for an unknown name."""
        self._find_entry(name)
        active = await self.list_active(session)
        await session.keep(ACTIVE_SERVERS, [*active, *([] if name in active else [name])])

    async def deactivate(self, session: "Session[Any]", name: str) -> bool:
        """Deactivate a server for a session, from its next run on; return False if it was not active."""
        active = await self.list_active(session)
        if name not in active:
            return False
        await session.keep(ACTIVE_SERVERS, [each for each in active if each != name])
        return True

    def search(self, need: str) -> list[CatalogueEntry]:
        """Return the servers that match a need, the best match first."""
        wanted = set(_list_words(need))
        scores = {name: _score_entry(each, wanted) for name, each in self.entries.items()}
        found = [each for name, each in self.entries.items() if scores[name]]
        return sorted(found, key=lambda each: -scores[each.name])

    # -- the model -----------------------------------------------------------------------------------------------------

    def _build_tool(self) -> Tool[..., Any]:
        async def discover_tools(
            need: Annotated[str, "What you need tools for, in a few words."],
            context: ToolContext[Any],
            server: Annotated[str, "The name of a server, if you know which one you want."] = "",
        ) -> str:
            return await self._discover(need, server, context)

        known = "; ".join([f"{each.name}: {each.description}" for each in self.entries.values()][:_MOST_SHOWN])
        more = "" if len(self.entries) <= _MOST_SHOWN else f"; and {len(self.entries) - _MOST_SHOWN} more"
        description = f"Find more tools for a task, and get them. There are servers with tools for: {known}{more}."
        return tool(
            discover_tools,
            name=TOOL_NAME,
            description=description,
            effect="idempotent",
            asks_first=True,
            labels=[UNTRUSTED_LABEL],  # servers write the names of their tools, and their errors
        )

    async def _discover(self, need: str, server: str, context: ToolContext[Any]) -> str:
        if server and server not in self.entries:
            raise ToolError(f"there is no server {server!r}; there is {', '.join(self.entries) or 'none'}")
        found = [self.entries[server]] if server else self.search(need)[:_MOST_SHOWN]
        if not found:
            return f"No server matches {need!r}. There are:\n{_describe_entries(self.entries.values())}"
        active = _read_names(context.kept(ACTIVE_SERVERS))
        if found[0].name in active:
            return await self._describe_activated(found[0], context)
        chosen = await self._choose_entry(need, found, context)
        if isinstance(chosen, str):
            return chosen
        text = await self._describe_activated(chosen, context)  # before it is stored: one that fails is not activated
        await context.begin()
        lock: asyncio.Lock = context.run.scratch.setdefault("mcp_catalogue", asyncio.Lock())
        async with lock:  # calls of the same turn may have activated others meanwhile
            active = _read_names(context.kept(ACTIVE_SERVERS))
            await context.keep(ACTIVE_SERVERS, [*active, *([] if chosen.name in active else [chosen.name])])
        return text

    async def _choose_entry(
        self, need: str, found: Sequence[CatalogueEntry], context: ToolContext[Any]
    ) -> "CatalogueEntry | str":
        """Return the server to activate, as the policy says; or the text for the model instead."""
        if self.policy == "best":
            return found[0]
        if self.policy == "interactive":
            return await _ask_person(need, found, context)
        if self._choose is None:
            await context.begin()
            await context.keep(REQUESTED_SERVERS, {"need": need, "servers": [each.name for each in found]})
            return (
                f"The host program decides about these servers; go on without them for now:\n{_describe_entries(found)}"
            )
        chosen = self._choose(need, found, context)
        name = await chosen if isawaitable(chosen) else chosen
        return "The host program activates none of them." if name is None else self._find_entry(name)

    async def _describe_activated(self, entry: CatalogueEntry, context: ToolContext[Any]) -> str:
        tools = await self._load_tools(entry.name, get_run_of_call(context))
        names = ", ".join([each.name for each in tools]) or "none"
        return f"The server {entry.name!r} is active. From now on you have its tools: {names}."

    def _find_entry(self, name: str) -> CatalogueEntry:
        entry = self.entries.get(name)
        if entry is None:
            raise ConfigError(
                f"there is no server {name!r} in the catalogue; there is {', '.join(self.entries) or 'none'}"
            )
        return entry

    # -- runs ----------------------------------------------------------------------------------------------------------

    async def _offer_tools(self, run: Run) -> None:
        """Offer a run the tools of the servers that its session has activated; those that fail are left out."""
        found: list[Tool[..., Any]] = []
        for name in _read_names(run.state.kept_values.get(ACTIVE_SERVERS)):
            if name not in self.entries:
                continue
            try:
                found += await self._load_tools(name, run)
            except (ToolError, ConfigError) as error:
                logger.warning("the tools of an activated MCP server cannot be used: %s", error)
        fresh = [each for each in found if each.name not in run.toolbox]
        if fresh:
            run.add_tools(fresh)

    async def _load_tools(self, name: str, run: Run) -> list[Tool[..., Any]]:
        """Return the tools of a server for this run; listed once, and again after a change."""
        headers = await self._find_headers(self.entries[name].server, run)
        client = self._servers.pool.get_client(name, headers)
        memo: tuple[int, list[Tool[..., Any]]] | None = run.scratch.get(f"mcp_catalogue:{name}")
        if memo is not None and memo[0] == client.list_version:
            return memo[1]
        tools = await self._servers.load_tools(name, headers)
        run.scratch[f"mcp_catalogue:{name}"] = (client.listed_version, tools)
        return tools

    async def _find_headers(self, server: McpServer, run: Run) -> dict[str, str]:
        if self._resolve_headers is None or server.transport == "stdio":
            return {}
        found = self._resolve_headers(server, run)
        return dict(await found if isawaitable(found) else found)

    @asynccontextmanager
    async def _open(self, _agent: object = None) -> AsyncGenerator["McpCatalogue"]:
        """Keep connections that are made meanwhile until the block ends. None is made here."""
        self._users += 1
        try:
            yield self
        finally:
            self._users -= 1
            if not self._users:
                await self._servers.pool.close()


async def _ask_person(need: str, found: Sequence[CatalogueEntry], context: ToolContext[Any]) -> CatalogueEntry | str:
    """Ask a person which server to activate, with what would be started or reached. Naming one changes nothing."""
    need = need if len(need) <= _MAX_SHOWN_NEED else f"{need[:_MAX_SHOWN_NEED]}…"  # a person has to see the server
    try:
        if len(found) == 1:
            entry = found[0]
            text = f"Activate the MCP server {entry.name!r} ({entry.how_reached}) for {need!r}?"
            return entry if await context.ask(Confirm(text)) else "A person was asked, and said no."
        options = [Option(each.name, f"{each.name}: {each.description} ({each.how_reached})") for each in found]
        none = Option("-", "none of them")  # which no server is called
        chosen = await context.ask(Choice(f"Activate an MCP server for {need!r}?", [*options, none]))
    except NotAnswered:
        return "Activating a server needs the consent of a person, and none answered. Go on without it."
    by_name = {each.name: each for each in found}
    return by_name.get(str(chosen), "A person was asked, and chose none.")


def _score_entry(entry: CatalogueEntry, wanted: set[str]) -> int:
    """Return how well an entry matches search terms: its name and tags count more than its description."""
    strong = {*_list_words(entry.name), *[word for tag in entry.tags for word in _list_words(tag)]}
    return 3 * len(wanted & strong) + len(wanted & set(_list_words(entry.description)))


def _list_words(text: str) -> list[str]:
    return [each.rstrip("s") or each for each in _WORD.findall(text.lower())]


def _describe_entries(entries: Any) -> str:
    return "\n".join([f"- {each.name}: {each.description}" for each in entries]) or "none"


def _read_names(value: object) -> list[str]:
    return [each for each in cast("list[object]", value) if isinstance(each, str)] if isinstance(value, list) else []
