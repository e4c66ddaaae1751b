"""Exceptions of HTTP requests: host unreachable, response cut off, too slow, too large or malformed, egress denied.

NetError
├ HostUnreachable     no response: nothing was received
├ ResponseCutOff      the response ended before it was complete
├ HttpTimeoutExceeded    a deadline passed; the message names it
├ ResponseTooLarge    a response, or an event in it, exceeds the size limit
├ InvalidResponse     the response is malformed, or the connection is not trusted
└ EgressDenied        the egress policy does not allow the request
"""

from perdure.core.error import PerdureError


class NetError(PerdureError):
    """Base class of the exceptions for failed HTTP requests."""

    exit_code = 69


class HostUnreachable(NetError):
    """Raised when an HTTP request got no response: the host could not be reached, or closed the connection."""

    retryable = True


class ResponseCutOff(NetError):
    """Raised when an HTTP response ended before it was complete."""

    retryable = True


class HttpTimeoutExceeded(NetError):
    """Raised when an HTTP request exceeds a timeout: no connection, no response, or no content for too long."""

    retryable = True


class ResponseTooLarge(NetError):
    """Raised when an HTTP response, or one event of a streamed response, exceeds the size limit."""


class InvalidResponse(NetError):
    """Raised when an HTTP response is malformed, or the TLS certificate of its server is not trusted."""


class EgressDenied(NetError):
    """Raised when an egress policy does not allow a request: its URL, an address of its host, or a redirect.

    The message is part of a sentence, and does not contain the address that a host name resolves to: whoever steers the
    request could map the private network with it.
    """
