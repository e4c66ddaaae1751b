"""Delivery state of one request to an MCP server: its HTTP status, and whether the server may have carried it out."""

from typing import Final

from msgspec import Struct

CONNECTION_CLOSED: Final = -32000
"""Code of the SDK for a request whose connection was lost."""
REQUEST_TIMEOUT: Final = -32001
"""Code of the SDK for a request that took too long."""
PARSE_ERROR: Final = -32700
"""Code of the SDK for an answer that cannot be parsed."""
_UNANSWERED_CODES: Final = frozenset({CONNECTION_CLOSED, REQUEST_TIMEOUT, PARSE_ERROR})
_MESSAGE_TYPES: Final = frozenset({"application/json", "text/event-stream"})
_LOST_SESSION_STATUSES: Final = frozenset({0, 400, 404})
_OK, _REDIRECT, _HTTP_ERROR, _UNAUTHORIZED = 200, 300, 400, 401


class RequestDelivery(Struct):
    """Delivery state of one request to an MCP server: whether it was sent, its HTTP status, and any transport error."""

    was_sent: bool = True
    """False if the request never left this machine."""
    status: int = 0
    """HTTP status of the answer; 0 if there was none."""
    content_type: str = ""
    """Type of the body."""
    has_rpc_error: bool = False
    """The body of an HTTP error was the server's own answer in JSON-RPC."""
    problem: str = ""
    """Why there is no answer."""
    has_arrived: bool = False
    """True if a message of this request may have reached the server, and was not refused: the fate of a later
    one, such as the next round of a call, does not change that.
    """

    def note_answer(self, status: int, content_type: str) -> None:
        """Record the HTTP status and content type of an answer."""
        self.status, self.content_type, self.has_rpc_error = status, content_type, False
        self.has_arrived = self.has_arrived or status != _UNAUTHORIZED

    def note_unsent(self, problem: str) -> None:
        """Record that the server could not be reached, and the error."""
        self.problem, self.was_sent = problem, self.has_arrived

    def note_lost(self, problem: str) -> None:
        """Record that the request was sent, but has no usable answer."""
        self.problem, self.was_sent, self.has_arrived = problem, True, True

    @property
    def was_refused(self) -> bool:
        """True if the server requires a login: by its definition, status 401 means that the request was not applied."""
        return self.status == _UNAUTHORIZED and not self.has_arrived

    @property
    def has_lost_session(self) -> bool:
        """True if a new connection is needed: the server is unreachable, or does not know the session."""
        return not self.was_sent or self.status in _LOST_SESSION_STATUSES

    def is_answer(self, code: int) -> bool:
        """Return True if an error with this code is the server's own answer, not an error of the transport."""
        if code in _UNANSWERED_CODES or self.problem:
            return False
        if not self.status:
            return True  # over pipes, only messages arrive
        if _OK <= self.status < _REDIRECT:
            return self.content_type in _MESSAGE_TYPES and self.status == _OK
        return self.has_rpc_error

    def describe(self) -> str:
        """Return a text that says why the request failed: the transport error or the HTTP status."""
        return self.problem or (f"HTTP status {self.status}" if self.status else "the connection was lost")

    def describe_failure(self) -> str:
        """Return why a connection cannot be made; empty if the transport has seen no problem."""
        if self.was_refused:
            return "it wants a login (HTTP status 401), as with perdure mcp login"
        return self.describe() if self.problem or self.status >= _HTTP_ERROR else ""
