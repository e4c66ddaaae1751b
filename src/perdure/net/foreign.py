"""What aiohttp raises, told as errors of ours: what happened, where, what to do. Above: `pool.py`. Below: aiohttp."""

import errno

import aiohttp
from aiohttp import http_exceptions

from .error import BrokenOff, NetError, TooSlow, Unreachable, Unreadable
from .transport import Deadlines

FOREIGN = (aiohttp.ClientError, OSError, ValueError, RuntimeError)
"""What aiohttp raises; a `RuntimeError` when a connection was closed under it."""

_LONGEST_REASON = 200
_DROPPED = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED, errno.ESHUTDOWN)

_UNANSWERED: tuple[tuple[type[Exception], type[NetError], str], ...] = (
    (
        aiohttp.ConnectionTimeoutError,
        TooSlow,
        "no connection to {host!r} within {deadlines.connect_seconds:g} s: check the address and the network",
    ),
    (TimeoutError, TooSlow, "{host!r} has not begun to answer within {deadlines.first_byte_seconds:g} s"),
    (
        aiohttp.ClientSSLError,
        Unreadable,
        "the connection to {host!r} cannot be trusted ({reason}): name the certificates to trust in SSL_CERT_FILE",
    ),
    (
        aiohttp.ClientProxyConnectionError,
        Unreachable,
        "the proxy on the way to {host!r} cannot be reached ({reason}): see HTTPS_PROXY and NO_PROXY",
    ),
    (
        aiohttp.ClientHttpProxyError,
        Unreachable,
        "the proxy on the way to {host!r} does not let us through ({reason}): see HTTPS_PROXY and NO_PROXY",
    ),
    (
        aiohttp.ClientConnectorDNSError,
        Unreachable,
        "there is no host {host!r} ({reason}): check the address and the network",
    ),
    (
        aiohttp.ClientConnectorError,
        Unreachable,
        "cannot connect to {host!r} ({reason}): is it running, and is the port right?",
    ),
    (
        aiohttp.ClientResponseError,
        Unreadable,
        "{host!r} answers with something that is not HTTP ({reason}): check the address",
    ),
    (
        aiohttp.InvalidURL,
        NetError,
        "cannot post to the host {host!r}: give a whole address, such as 'https://example.com/v1'",
    ),
    (
        aiohttp.NonHttpUrlClientError,
        NetError,
        "cannot post to the host {host!r}: give an address that begins with 'https://' or 'http://'",
    ),
    (aiohttp.ClientConnectionError, Unreachable, "{host!r} closed the connection without an answer ({reason})"),
    (OSError, Unreachable, "{host!r} closed the connection without an answer ({reason})"),
    (Exception, NetError, "cannot post to {host!r}: {reason}"),
)
"""The first that fits says why there is no answer."""


def unanswered(error: Exception, host: str, deadlines: Deadlines) -> NetError:
    """Why there is no answer."""
    root = _root(error)
    if isinstance(root, http_exceptions.BadHttpMessage) and not isinstance(root, http_exceptions.BadStatusLine):
        return broken_off(error, host)
    ours, told = next((ours, told) for theirs, ours, told in _UNANSWERED if isinstance(error, theirs))
    return ours(told.format(host=host, deadlines=deadlines, reason=_reason(error)))


def broken_off(error: Exception, host: str) -> NetError:
    """Why the answer ends here."""
    if isinstance(_root(error), http_exceptions.ContentEncodingError):
        return Unreadable(f"the answer of {host!r} is not compressed in the way it says ({_reason(error)})")
    return BrokenOff(f"the answer of {host!r} broke off ({_reason(error)})")


def was_dropped(error: aiohttp.ServerDisconnectedError | aiohttp.ClientOSError) -> bool:
    """Whether the other end had given up the connection."""
    return isinstance(error, aiohttp.ServerDisconnectedError) or error.errno in _DROPPED


def _root(error: BaseException) -> BaseException:
    """What an error was raised for in the first place."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _reason(error: BaseException) -> str:
    """What an error of another library says, in one short line. Never all of it: it may tell the whole address."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    said = getattr(error, "strerror", None) or getattr(error, "message", None) or str(error) or type(error).__name__
    return " ".join(str(said).split())[:_LONGEST_REASON]
