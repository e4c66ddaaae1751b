"""Connection to an MCP server, owned by one task, which makes the requests that callers put into its queue.

The SDK's client is entered, used for each request and left in tasks of this module alone, so no cancel scope crosses
tasks. A caller that is cancelled cancels the task of its own request, which tells the server.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import ContextVar
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import mcp_types
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from perdure._core.log.store import run_to_completion
from perdure._version import __version__

from .delivery import RequestDelivery
from .transports import current_record

T = TypeVar("T")

MAX_QUESTIONS: Final = 8
"""Questions of a server to people that may be open at the same time; further ones are declined."""
_ERROR_SECONDS: Final = 0.2
"""Seconds in which requests get their own errors when the server is gone."""
_CLOSE_SECONDS: Final = 3.0
"""Seconds that requests have to end when the connection is closed."""
_CLOSED: Final = "the connection was closed"

logger = logging.getLogger("perdure")


class McpUnreachable(Exception):
    """Raised when the connection to an MCP server could not be made, or was lost."""

    def __init__(self, reason: str, *, was_sent: bool = False) -> None:
        super().__init__(reason)
        self.was_sent = was_sent
        """True if the request may have reached the server."""


class ElicitationAnswerer(Protocol):
    """Protocol for an object that asks people the questions an MCP server has during one tool call."""

    @property
    def run_id(self) -> str:
        """The run of the call: a question is never asked in another."""
        ...

    async def answer(self, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        """Ask people, and return their answer."""
        ...


_current_answerer: ContextVar[ElicitationAnswerer | None] = ContextVar("perdure_mcp_answerer", default=None)


class _Request(Generic[T]):
    """A request of a caller: the function that makes it, and the future for its result."""

    def __init__(
        self,
        function: Callable[[Client], Awaitable[T]],
        record: RequestDelivery | None,
        answerer: ElicitationAnswerer | None,
    ) -> None:
        self.function = function
        self.record = record
        self.answerer = answerer
        self.result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None

    async def make(self, client: Client) -> None:
        """Make the request, and pass its result or error to the caller."""
        current_record.set(self.record)
        _current_answerer.set(self.answerer)
        try:
            value = await self.function(client)
        except asyncio.CancelledError:
            self.fail(McpUnreachable(_CLOSED, was_sent=True))
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            self.fail(error)
        else:
            if not self.result.done():
                self.result.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Let the caller get an error, if it still waits."""
        if not self.result.done():
            self.result.set_exception(error)

    def cancel(self) -> None:
        """Cancel the request, here and at the server."""
        self.result.cancel()
        if self.task is not None:
            self.task.cancel()


class McpConnection:
    """Connection to an MCP server, on one event loop. It ends with `close`, or when the server is gone."""

    def __init__(
        self,
        streams: AbstractAsyncContextManager[Any],
        *,
        start_seconds: float,
        on_list_changed: Callable[[], None],
    ) -> None:
        self._streams = streams
        self._start_seconds = start_seconds
        self._on_list_changed = on_list_changed
        self._requests: asyncio.Queue[_Request[Any] | None] = asyncio.Queue()
        self._making: dict[asyncio.Task[None], _Request[Any]] = {}
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._open_questions = 0
        self.end_reason = ""
        """Why the connection has ended; empty while it is open."""
        self._owner = asyncio.create_task(self._own(), name="perdure-mcp-connection")

    # -- for callers ---------------------------------------------------------------------------------------------------

    async def wait_until_ready(self) -> Client:
        """Wait until the server has answered. Raises `McpUnreachable` if it cannot be reached, or takes too long."""
        return await asyncio.shield(self._ready)

    @property
    def is_open(self) -> bool:
        """True if requests can be made."""
        return not self.end_reason and not self._owner.done()

    @property
    def is_busy(self) -> bool:
        """True if a request is being made."""
        return bool(self._making) or not self._requests.empty()

    async def perform(
        self,
        function: Callable[[Client], Awaitable[T]],
        *,
        record: RequestDelivery | None = None,
        answerer: ElicitationAnswerer | None = None,
    ) -> T:
        """Call a function with the SDK's client in a task of this connection, and return its result.

        If the caller is cancelled, so is the function. Raises `McpUnreachable` if the connection is closed meanwhile.
        """
        if not self.is_open:
            raise McpUnreachable(self.end_reason or "the connection is closed")
        request = _Request(function, record, answerer)
        self._requests.put_nowait(request)
        try:
            return await request.result
        except asyncio.CancelledError:
            request.cancel()
            raise

    def end(self, reason: str) -> None:
        """Let the connection end soon, for this reason."""
        if not self.end_reason:
            self.end_reason = reason
            self._requests.put_nowait(None)

    async def close(self) -> None:
        """Close the connection, and wait until everything is gone, also if the caller is cancelled."""
        self.end(_CLOSED)
        if not self._ready.done():
            self._owner.cancel()
        _, cancelled = await run_to_completion(asyncio.wait((self._owner,)))
        if cancelled:
            raise asyncio.CancelledError

    # -- the owner -----------------------------------------------------------------------------------------------------

    async def _own(self) -> None:
        """Open the connection, let requests be made until it ends, and close it."""
        record = RequestDelivery()
        current_record.set(record)
        try:
            async with AsyncExitStack() as stack:
                client = self._build_client()
                async with asyncio.timeout(self._start_seconds):
                    await stack.enter_async_context(client)
                    # The SDK would check results with regular expressions of the server, which can take for ever; and
                    # would list the tools for it. `result_conversion` checks them in bounded time.
                    vars(client.session)["validate_tool_result"] = _accept_result
                self._ready.set_result(client)
                stack.push_async_callback(self._end_requests, self._watch_lists(client))
                while (request := await self._requests.get()) is not None:
                    self._start_request(request, client)
        except TimeoutError:
            self._settle(f"it did not answer within {self._start_seconds:g} seconds")
        except asyncio.CancelledError:
            self._settle(_CLOSED)
        except BaseException as error:  # noqa: BLE001 - groups of the SDK's task groups; each request gets its own error
            self._settle(record.describe_failure() or describe_connection_error(error))
        else:
            self._settle(_CLOSED)

    def _build_client(self) -> Client:
        return Client(
            self._streams,
            message_handler=self._handle_message,
            elicitation_callback=self._answer_elicitation,
            client_info=mcp_types.Implementation(name="perdure", version=__version__),
            cache=None,
        )

    def _start_request(self, request: _Request[Any], client: Client) -> None:
        if request.result.done():  # its caller is gone
            return
        request.task = task = asyncio.create_task(request.make(client), name="perdure-mcp-request")
        self._making[task] = request
        task.add_done_callback(self._forget_request)

    def _forget_request(self, task: "asyncio.Task[None]") -> None:
        del self._making[task]

    async def _end_requests(self, subscription: "asyncio.Task[None] | None") -> None:
        """Let requests get their own errors, and cancel those that are left."""
        if self._making and self.end_reason != _CLOSED:
            await asyncio.wait([*self._making], timeout=_ERROR_SECONDS)
        problem = McpUnreachable(self.end_reason, was_sent=True)
        for request in [*self._making.values()]:
            request.fail(problem)
        left = [*self._making, *([] if subscription is None else [subscription])]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_CLOSE_SECONDS)

    def _settle(self, reason: str) -> None:
        """Let everyone who waits know that the connection has ended."""
        self.end_reason = self.end_reason or reason
        problem = McpUnreachable(self.end_reason)
        if not self._ready.done():
            self._ready.set_exception(problem)
            self._ready.exception()  # the caller may be gone
        for request in [*self._making.values()]:
            request.fail(McpUnreachable(self.end_reason, was_sent=True))
        while not self._requests.empty():
            if (waiting := self._requests.get_nowait()) is not None:
                waiting.fail(problem)

    # -- what the server sends by itself -------------------------------------------------------------------------------

    def _watch_lists(self, client: Client) -> "asyncio.Task[None] | None":
        """Subscribe to changes of the tool list, where the protocol has subscriptions."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return None
        return asyncio.create_task(self._listen(client), name="perdure-mcp-subscription")

    async def _listen(self, client: Client) -> None:
        try:
            async with client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self._on_list_changed()
        except Exception:
            logger.debug("an MCP server reports no changes of its tools", exc_info=True)

    async def _handle_message(self, message: Any) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._on_list_changed()

    async def _answer_elicitation(
        self, context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> "mcp_types.ElicitResult | mcp_types.ErrorData":
        del context
        answerer = _current_answerer.get() or self._find_answerer()
        if answerer is None or self._open_questions >= MAX_QUESTIONS:
            return mcp_types.ElicitResult(action="decline")
        self._open_questions += 1
        try:
            return await answerer.answer(params)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - it is the caller's: the run is suspended, or its log has failed
            self._fail_requests_of(answerer, error)
            return mcp_types.ElicitResult(action="cancel")
        finally:
            self._open_questions -= 1

    def _fail_requests_of(self, answerer: ElicitationAnswerer, error: BaseException) -> None:
        """Let the caller whose question could not be asked get the error, and cancel its request."""
        for task, request in [*self._making.items()]:
            if request.answerer is answerer:
                request.fail(error)
                task.cancel()

    def _find_answerer(self) -> ElicitationAnswerer | None:
        """Return who answers a question that names no call: over pipes, it may belong to any call that is being made.

        If these are of several runs, there is none: a question of one run would be asked in another.
        """
        found = [each.answerer for each in self._making.values() if each.answerer is not None]
        return found[0] if len({each.run_id for each in found}) == 1 else None


async def _accept_result(name: str, result: mcp_types.CallToolResult) -> None:
    """Accept any result of a tool."""
    del name, result


def describe_connection_error(error: BaseException) -> str:
    """Return one line of text: why a connection to an MCP server could not be made, or was lost."""
    first: BaseException = error
    while isinstance(first, BaseExceptionGroup):
        first = cast("BaseExceptionGroup[BaseException]", first).exceptions[0]
    text = str(first).strip().partition("\n")[0][:300]
    return f"{type(first).__name__}: {text}" if text else type(first).__name__
