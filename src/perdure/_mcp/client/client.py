"""Client of one MCP server for one identity (a set of headers): connects on first use, reconnects, stops when idle.

After a lost connection a read is tried once more; what may have an effect is never sent twice.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from perdure._core.log.store import run_to_completion
from perdure._core.values.checks import UnresolvedSignatureMeta
from perdure._core.values.clock import SYSTEM_CLOCK
from perdure._core.values.error import ConfigError, EffectNotStarted, PerdureError, ToolError
from perdure._mcp.settings import McpServer, hide_secrets

from .delivery import CONNECTION_CLOSED, RequestDelivery
from .listing import (
    MAX_ITEMS,
    MAX_TOOLS,
    CheckedToolList,
    FloodMeter,
    ListedTool,
    check_tool_list,
    clean_text,
    collect_pages,
)

if TYPE_CHECKING:
    import httpx2
    import mcp_types
    from mcp import Client

    from .connection import ElicitationAnswerer, McpConnection
    from .transports import LineProcess

T = TypeVar("T")

MOST_STARTS: Final = 5
"""Attempts to connect within `START_SECONDS`; then a while has to pass."""
START_SECONDS: Final = 60.0
HARD_CALL_SECONDS: Final = 1800.0
"""The longest time that progress can extend a call to."""
_CLOSED_MESSAGE: Final = "Connection closed"
"""The words of the SDK for a lost connection."""
Progress = Callable[[float, float | None, str | None], None]

logger = logging.getLogger("perdure")


class McpError(ToolError):
    """Raised when an MCP server cannot be reached, or answers a request with an error."""


class FateUnknown(McpError):
    """Raised when a request was sent to an MCP server, and it is unknown whether the server carried it out."""


class CallTimedOut(FateUnknown):
    """Raised when a request to an MCP server took too long, and was cancelled; it may have been carried out."""


class UnusableAnswer(FateUnknown):
    """Raised when an MCP server answers a request with something that is not a valid result."""


class NoConnection(EffectNotStarted):
    """Raised when no connection to an MCP server could be made, so that the request was not sent."""


class StartAndLoginCallbacks(Struct, frozen=True, eq=False, metaclass=UnresolvedSignatureMeta):
    """Callbacks of an `McpClient`: one starts the process of a server, the other returns its stored login."""

    start_process: "Callable[[McpServer], Awaitable[LineProcess]]"
    login: "Callable[[McpServer], httpx2.Auth | None] | None" = None


class McpClient:
    """Client of one MCP server for one identity (a set of headers). Must be used on one event loop."""

    def __init__(
        self,
        server: McpServer,
        links: StartAndLoginCallbacks,
        *,
        headers: Mapping[str, str] | None = None,
        monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic,
    ) -> None:
        self.server = server
        """The settings of the server."""
        self._links = links
        self._headers = {**server.headers, **(headers or {})}
        self._monotonic = monotonic
        self._connection: McpConnection | None = None
        self._opening = asyncio.Lock()
        self._starts: list[float] = []
        self._failures = 0
        self._last_failure: NoConnection | None = None
        self._listing: CheckedToolList | None = None
        self._users = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._stopping: asyncio.Task[None] | None = None
        self.listed_version = -1
        """The `list_version` of the last listing."""
        self.list_version = 0
        """Grows whenever the server reports that its tools have changed, or was connected to again."""

    @property
    def is_connected(self) -> bool:
        """True if there is a connection to the server."""
        return self._connection is not None and self._connection.is_open

    @property
    def is_in_use(self) -> bool:
        """True if there is a connection, or a request is being made."""
        return self._connection is not None or self._users > 0

    # -- requests ------------------------------------------------------------------------------------------------------

    async def list_tools(self) -> CheckedToolList:
        """Return the tools of the server, within the limits; asked for again after a change. Raises `McpError`."""
        if self._listing is None or self.listed_version != self.list_version:
            self._listing = await self._read(self._list_all_tools)
        return self._listing

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        is_read: bool = False,
        expected: ListedTool | None = None,
        on_progress: Progress | None = None,
        answerer: "ElicitationAnswerer | None" = None,
        meta: Mapping[str, Any] | None = None,
    ) -> "mcp_types.CallToolResult":
        """Call a tool by the server's own name, and return its result.

        Raises `McpError` for an error that the server reports, `EffectNotStarted` if the call was certainly not made,
        and `FateUnknown` if it cannot be known. A read is made again once after a lost connection. With `expected`, it
        is refused if the server now lists the tool differently.
        """
        time_limit = CallDeadline(self.server)

        async def make_call(client: "Client") -> "mcp_types.CallToolResult":
            return await time_limit.call(client, name, dict(arguments), on_progress, meta)

        timed = None if answerer is None else _TimedAnswerer(answerer, time_limit)
        return await self._request(make_call, is_read=is_read, answerer=timed, expected=expected)

    async def list_resources(self) -> "list[mcp_types.Resource]":
        """Return the resources of the server, at most `MAX_ITEMS`. Raises `McpError`."""

        async def list_all(client: "Client") -> "list[mcp_types.Resource]":
            if client.server_capabilities.resources is None:
                return []
            found, _ = await collect_pages(lambda cursor: client.list_resources(cursor=cursor), "resources", MAX_ITEMS)
            return found

        return await self._read(list_all)

    async def read_resource(self, uri: str) -> "mcp_types.ReadResourceResult":
        """Return the contents of a resource of the server. Raises `McpError`."""
        return await self._read(lambda client: client.read_resource(uri))

    async def list_prompts(self) -> "list[mcp_types.Prompt]":
        """Return the prompts of the server, at most `MAX_ITEMS`. Raises `McpError`."""

        async def list_all(client: "Client") -> "list[mcp_types.Prompt]":
            if client.server_capabilities.prompts is None:
                return []
            found, _ = await collect_pages(lambda cursor: client.list_prompts(cursor=cursor), "prompts", MAX_ITEMS)
            return found

        return await self._read(list_all)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> "mcp_types.GetPromptResult":
        """Return the messages of a prompt of the server. Raises `McpError`."""
        return await self._read(lambda client: client.get_prompt(name, dict(arguments or {})))

    async def get_instructions(self) -> str:
        """Return the server's instructions for its use, within the limit of a description. Raises `McpError`."""
        with self._keep_from_idling():
            connection = await self._connect()
            return clean_text((await connection.wait_until_ready()).instructions or "")[:4096]

    async def close(self) -> None:
        """Close the connection, and end the server's process if there is one. The next request opens it again."""
        self._cancel_idle_timer()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        if self._stopping is not None:
            await run_to_completion(self._stopping)

    # -- how they are made ---------------------------------------------------------------------------------------------

    async def _list_all_tools(self, client: "Client") -> CheckedToolList:
        version = self.list_version
        listing = await self._read_listing(client)
        self.listed_version = version
        return listing

    async def _read_listing(self, client: "Client") -> CheckedToolList:
        if client.server_capabilities.tools is None:
            return CheckedToolList()
        most = MAX_TOOLS + 1
        found, is_cut = await collect_pages(lambda cursor: client.list_tools(cursor=cursor), "tools", most)
        listed = [each.model_dump(by_alias=True, mode="json", exclude_none=True) for each in found]
        # On a thread: compiling the schemas of many tools would hold up everything else on the event loop.
        listing = await asyncio.to_thread(check_tool_list, self.server.name, listed, is_cut=is_cut)
        for problem in listing.problems:
            logger.warning("MCP server %r: %s", self.server.name, problem)
        return listing

    async def _read(self, function: "Callable[[Client], Awaitable[T]]") -> T:
        async def read_in_time(client: "Client") -> T:
            try:
                async with asyncio.timeout(self.server.call_timeout_seconds):
                    return await function(client)
            except TimeoutError:
                raise CallTimedOut(self._say("it did not answer in time")) from None

        return await self._request(read_in_time, is_read=True)

    async def _request(
        self,
        function: "Callable[[Client], Awaitable[T]]",
        *,
        is_read: bool,
        answerer: "ElicitationAnswerer | None" = None,
        expected: ListedTool | None = None,
    ) -> T:
        """Make a request, and once more after a lost connection if it only reads or was never sent."""
        with self._keep_from_idling():
            for attempt in (1, 2):
                try:
                    return await self._request_once(function, answerer, expected)
                except (FateUnknown, EffectNotStarted) as problem:
                    may_repeat = is_read and not isinstance(problem, CallTimedOut | UnusableAnswer)
                    was_not_sent = isinstance(problem, EffectNotStarted) and not isinstance(problem, NoConnection)
                    if attempt == 2 or not (may_repeat or was_not_sent):  # noqa: PLR2004 - the second attempt is the last
                        raise
            raise AssertionError("unreachable")  # pragma: no cover - the loop returns or raises

    async def _request_once(
        self,
        function: "Callable[[Client], Awaitable[T]]",
        answerer: "ElicitationAnswerer | None",
        expected: ListedTool | None,
    ) -> T:
        connection = await self._connect()
        if expected is not None:
            await self._check_unchanged(expected)
        record = RequestDelivery()
        from mcp import MCPError  # loaded already: there is a connection

        from .connection import McpUnreachable

        try:
            return await connection.perform(function, record=record, answerer=answerer)
        except McpUnreachable as error:
            if record.was_refused:
                raise self._classify(error, record, connection) from error
            kind = FateUnknown if error.was_sent and record.was_sent else EffectNotStarted
            raise kind(self._say(str(error))) from error
        except MCPError as error:
            raise self._classify(error, record, connection) from error
        except PerdureError:
            raise
        except Exception as error:
            raise UnusableAnswer(self._say(f"its answer cannot be used: {_shorten(error)}")) from error

    async def _check_unchanged(self, expected: ListedTool) -> None:
        """Raise `McpError` if the server does not list a tool any more, or lists it differently."""
        listing = await self.list_tools()
        found = next((each for each in listing.tools if each.name == expected.name), None)
        if found is None:
            raise McpError(self._say(f"it has no tool {expected.name!r} any more"))
        if found is not expected and found.pinned_texts != expected.pinned_texts:
            problem = f"its tool {expected.name!r} has changed, and is switched off until a person approves the change"
            raise McpError(self._say(problem))

    def _classify(self, error: Any, record: RequestDelivery, connection: "McpConnection") -> ToolError:
        """Return the error for what the SDK raised: an answer of the server, or a request whose fate is unknown."""
        if record.was_refused:
            return McpError(self._say("it wants a login (HTTP status 401); the request was not carried out"))
        is_lost = error.code == CONNECTION_CLOSED and (record.status or error.message == _CLOSED_MESSAGE)
        is_own_code = error.code == CONNECTION_CLOSED and not is_lost
        # servers use the code of a lost connection for their own errors
        if is_own_code or record.is_answer(error.code):
            return McpError(self._say(f"error {error.code}: {_shorten(error)}"))
        if record.has_lost_session or error.message == _CLOSED_MESSAGE:
            connection.end(record.describe())  # a new one is made for the next request
        if not record.was_sent:
            return EffectNotStarted(self._say(record.describe()))
        reason = connection.end_reason if connection.end_reason and not record.status else record.describe()
        return FateUnknown(self._say(reason))

    def _say(self, problem: str) -> str:
        """Return an error message, without the secrets of the server's environment and headers."""
        text = hide_secrets(clean_text(problem), [*self.server.env.values(), *self._headers.values()])
        return f"MCP server {self.server.name!r}: {text}"

    # -- the connection ------------------------------------------------------------------------------------------------

    async def _connect(self) -> "McpConnection":
        """Return the open connection; else make one. Raises `NoConnection` if the server cannot be reached.

        Callers that wait for the same attempt share its failure.
        """
        failures = self._failures
        async with self._opening:
            if self._connection is not None and self._connection.is_open:
                return self._connection
            if self._failures != failures and self._last_failure is not None:
                raise NoConnection(str(self._last_failure)) from self._last_failure
            if self._connection is not None:
                await self._connection.close()
                self._connection = None
            self._check_start_rate()
            from .connection import McpUnreachable

            try:
                self._connection = await self._open()
            except McpUnreachable as error:
                self._failures += 1
                self._last_failure = NoConnection(self._say(f"no connection: {error}"))
                raise self._last_failure from error
            self._note_change()
            return self._connection

    async def _open(self) -> "McpConnection":
        from .connection import McpConnection

        holder: list[McpConnection] = []
        processes: list[LineProcess] = []

        def end(reason: str) -> None:
            tail = processes[0].error_text[-500:] if processes else ""
            for each in holder:
                each.end(f"{reason}; it wrote: {clean_text(tail)}" if tail else reason)

        connection = McpConnection(
            self._open_streams(end, processes),
            start_seconds=self.server.start_timeout_seconds,
            on_list_changed=self._note_change,
        )
        holder.append(connection)
        try:
            await connection.wait_until_ready()
        except BaseException:
            await connection.close()
            raise
        return connection

    def _open_streams(
        self, end: Callable[[str], None], processes: "list[LineProcess]"
    ) -> AbstractAsyncContextManager[Any]:
        flood = FloodMeter(end)
        if self.server.transport == "stdio":
            from .transports import open_stdio_streams

            async def start() -> "LineProcess":
                processes.append(await self._links.start_process(self.server))
                return processes[0]

            return open_stdio_streams(start, end, flood, self.server.name)
        from .transports import open_http_streams

        login = None if self._links.login is None else self._links.login(self.server)
        is_sse = self.server.transport == "sse"
        return open_http_streams(self.server.url, self._headers, flood, end, login=login, is_sse=is_sse)

    def _check_start_rate(self) -> None:
        """Raise `NoConnection` if the server was started too often within a minute."""
        now = self._monotonic()
        self._starts = [each for each in self._starts if now - each < START_SECONDS]
        if len(self._starts) >= MOST_STARTS:
            wait = START_SECONDS - (now - self._starts[0])
            raise NoConnection(self._say(f"it was started {MOST_STARTS} times in a minute: wait {wait:.0f} seconds"))
        self._starts.append(now)

    def _note_change(self) -> None:
        self.list_version += 1

    @contextmanager
    def _keep_from_idling(self) -> Generator[None]:
        """Keep the connection open during a block; the time in which it may be idle begins after the last one."""
        self._users += 1
        self._cancel_idle_timer()
        try:
            yield
        finally:
            self._users -= 1
            self._start_idle_timer()

    def _start_idle_timer(self) -> None:
        if self._users or self._connection is None:
            return
        self._cancel_idle_timer()
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(self.server.idle_seconds, self._stop_if_idle)

    def _stop_if_idle(self) -> None:
        self._idle_timer = None
        if not self._users and self._connection is not None:
            connection, self._connection = self._connection, None
            self._stopping = asyncio.ensure_future(connection.close())

    def _cancel_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None


class CallDeadline:
    """Time limit of one MCP tool call: progress reports extend it, and it pauses while a person answers a question."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._deadline: asyncio.Timeout | None = None
        self._latest = 0.0
        self._questions = 0
        self._is_running = False

    async def call(
        self,
        client: "Client",
        name: str,
        arguments: dict[str, Any],
        on_progress: Progress | None,
        meta: Mapping[str, Any] | None,
    ) -> "mcp_types.CallToolResult":
        """Call a tool. Raises `CallTimedOut`."""
        seconds = self._server.call_timeout_seconds
        self._latest = asyncio.get_running_loop().time() + max(HARD_CALL_SECONDS, seconds)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            self._extend()
            if on_progress is not None:
                on_progress(progress, total, message)

        try:
            async with asyncio.timeout(seconds) as self._deadline:
                self._is_running = True
                more = dict(meta) if meta else None
                return await client.call_tool(name, arguments, progress_callback=report, meta=more)  # type: ignore[arg-type]
        except TimeoutError:
            problem = f"tool {name!r} did not end within {seconds:g} seconds, and was told to stop"
            raise CallTimedOut(f"MCP server {self._server.name!r}: {problem}") from None
        finally:
            self._is_running = False

    def _extend(self) -> None:
        deadline = self._deadline
        if deadline is not None and self._is_running and not deadline.expired():
            now = asyncio.get_running_loop().time()
            later = min(now + self._server.call_timeout_seconds, self._latest)
            deadline.reschedule(None if self._questions else later)

    async def wait_for_people(self, answer: Awaitable[T]) -> T:
        """Wait for an answer of people; meanwhile the time does not count."""
        self._questions += 1
        self._extend()
        begun = asyncio.get_running_loop().time()
        try:
            return await answer
        finally:
            self._latest += asyncio.get_running_loop().time() - begun
            self._questions -= 1
            self._extend()


class _TimedAnswerer:
    """Pauses the time limit of a call while people answer a question of the server."""

    def __init__(self, inner: "ElicitationAnswerer", time_limit: CallDeadline) -> None:
        self._inner = inner
        self._time_limit = time_limit

    @property
    def run_id(self) -> str:
        return self._inner.run_id

    async def answer(self, params: "mcp_types.ElicitRequestParams") -> "mcp_types.ElicitResult":
        return await self._time_limit.wait_for_people(self._inner.answer(params))


def _shorten(error: BaseException) -> str:
    return clean_text(" ".join(str(error).split()))[:500]


def require_sdk() -> None:
    """Raise `ConfigError` unless the official MCP SDK is installed."""
    import importlib.util

    if importlib.util.find_spec("mcp") is None:
        raise ConfigError("MCP servers need the official SDK: pip install 'perdure[mcp]'")
