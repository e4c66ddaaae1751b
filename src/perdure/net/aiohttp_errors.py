"""Convert aiohttp exceptions to `NetError`, with messages that name the host and suggest what to do."""

import errno

import aiohttp
from aiohttp import http_exceptions

from .error import HostUnreachable, HttpTimeoutExceeded, InvalidResponse, NetError, ResponseCutOff
from .transport import Deadlines

AIOHTTP_ERRORS = (aiohttp.ClientError, OSError, ValueError, RuntimeError)
"""Exceptions that aiohttp raises; a `RuntimeError` if a connection was closed while in use."""

_LONGEST_REASON = 200
_DROPPED = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED, errno.ESHUTDOWN)

_REQUEST_ERRORS: tuple[tuple[type[Exception], type[NetError], str], ...] = (
    (
        aiohttp.ConnectionTimeoutError,
        HttpTimeoutExceeded,
        "no connection to {host!r} within {deadlines.connect_seconds:g} s: check the address and the network",
    ),
    (TimeoutError, HttpTimeoutExceeded, "{host!r} did not start to respond within {deadlines.first_byte_seconds:g} s"),
    (
        aiohttp.ClientSSLError,
        InvalidResponse,
        "the connection to {host!r} cannot be trusted ({reason}): name the certificates to trust in SSL_CERT_FILE",
    ),
    (
        aiohttp.ClientProxyConnectionError,
        HostUnreachable,
        "the proxy on the way to {host!r} cannot be reached ({reason}): see HTTPS_PROXY and NO_PROXY",
    ),
    (
        aiohttp.ClientHttpProxyError,
        HostUnreachable,
        "the proxy on the way to {host!r} refuses the request ({reason}): see HTTPS_PROXY and NO_PROXY",
    ),
    (
        aiohttp.ClientConnectorDNSError,
        HostUnreachable,
        "there is no host {host!r} ({reason}): check the address and the network",
    ),
    (
        aiohttp.ClientConnectorError,
        HostUnreachable,
        "cannot connect to {host!r} ({reason}): is it running, and is the port right?",
    ),
    (
        aiohttp.ClientResponseError,
        InvalidResponse,
        "{host!r} sent a response that is not HTTP ({reason}): check the address",
    ),
    (
        aiohttp.InvalidURL,
        NetError,
        "cannot send a request to the host {host!r}: give a complete URL, such as 'https://example.com/v1'",
    ),
    (
        aiohttp.NonHttpUrlClientError,
        NetError,
        "cannot send a request to the host {host!r}: give a URL that begins with 'https://' or 'http://'",
    ),
    (aiohttp.ClientConnectionError, HostUnreachable, "{host!r} closed the connection without an answer ({reason})"),
    (OSError, HostUnreachable, "{host!r} closed the connection without an answer ({reason})"),
    (Exception, NetError, "cannot send a request to {host!r}: {reason}"),
)
"""Exception type, error class and message of failed requests. The first match counts."""


def convert_request_error(error: Exception, host: str, deadlines: Deadlines) -> NetError:
    """Return the `NetError` for an aiohttp exception that was raised before the response started."""
    root = _get_root_cause(error)
    if isinstance(root, http_exceptions.BadHttpMessage) and not isinstance(root, http_exceptions.BadStatusLine):
        return convert_read_error(error, host)
    ours, told = next((ours, told) for theirs, ours, told in _REQUEST_ERRORS if isinstance(error, theirs))
    return ours(told.format(host=host, deadlines=deadlines, reason=_get_short_reason(error)))


def convert_read_error(error: Exception, host: str) -> NetError:
    """Return the `NetError` for an aiohttp exception that was raised while the response was read."""
    if isinstance(_get_root_cause(error), http_exceptions.ContentEncodingError):
        return InvalidResponse(
            f"the answer of {host!r} is not compressed as its header says ({_get_short_reason(error)})"
        )
    return ResponseCutOff(f"the answer of {host!r} broke off ({_get_short_reason(error)})")


def is_connection_dropped(error: aiohttp.ServerDisconnectedError | aiohttp.ClientOSError) -> bool:
    """Return True if an aiohttp exception means that the server closed the connection."""
    return isinstance(error, aiohttp.ServerDisconnectedError) or error.errno in _DROPPED


def _get_root_cause(error: BaseException) -> BaseException:
    """Return the original cause of an exception."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _get_short_reason(error: BaseException) -> str:
    """Return the message of a foreign exception as one short line, never in full: it may contain the whole URL."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    said = getattr(error, "strerror", None) or getattr(error, "message", None) or str(error) or type(error).__name__
    return " ".join(str(said).split())[:_LONGEST_REASON]
