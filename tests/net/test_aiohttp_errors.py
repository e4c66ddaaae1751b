"""What aiohttp raises is told in our words, with the host and what to do."""

import errno
import socket
import ssl
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import http_exceptions
from aiohttp.client_reqrep import ConnectionKey

from perdure._io.http.pool import convert_read_error, convert_request_error, is_connection_dropped
from perdure._io.http.transport import HostUnreachable, HttpTimeoutExceeded, InvalidResponse, NetError, ResponseCutOff
from perdure.models import Deadlines

KEY: Any = ConnectionKey("host.example", 443, True, True, None, None, None)


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (aiohttp.ConnectionTimeoutError(), HttpTimeoutExceeded, "no connection to 'host.example' within 10 s"),
        (TimeoutError(), HttpTimeoutExceeded, "did not start to respond within 300 s"),
        (
            aiohttp.ClientConnectorCertificateError(KEY, ssl.SSLCertVerificationError(1, "self-signed certificate")),
            InvalidResponse,
            "cannot be trusted (self-signed certificate): name the certificates to trust in SSL_CERT_FILE",
        ),
        (aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, "wrong version")), InvalidResponse, "(wrong version)"),
        (
            aiohttp.ClientConnectorDNSError(KEY, socket.gaierror(-2, "Name or service not known")),
            HostUnreachable,
            "there is no host 'host.example' (Name or service not known)",
        ),
        (
            aiohttp.ClientConnectorError(KEY, OSError(111, "Connection refused")),
            HostUnreachable,
            "cannot connect to 'host.example' (Connection refused): is it running",
        ),
        (
            aiohttp.ServerDisconnectedError(),
            HostUnreachable,
            "closed the connection without an answer (Server disconnected)",
        ),
        (ConnectionResetError(104, "Connection reset by peer"), HostUnreachable, "(Connection reset by peer)"),
        (RuntimeError("Session is closed"), NetError, "cannot send a request to 'host.example': Session is closed"),
        (ValueError(), NetError, "cannot send a request to 'host.example': ValueError"),
    ],
)
def test_why_there_is_no_answer_is_told(error, kind, told):
    ours = convert_request_error(error, "host.example", Deadlines())
    assert type(ours) is kind
    assert told in str(ours)
    assert "'host.example'" in str(ours)


def test_what_cannot_be_trusted_is_not_worth_asking_again():
    assert not InvalidResponse.retryable


def test_a_long_reason_is_told_in_one_short_line():
    told = str(convert_read_error(aiohttp.ClientPayloadError("line\n" * 1000), "host"))
    assert "\n" not in told
    assert len(told) < 300


def caused(error: Exception, *causes: Exception) -> Exception:
    """The error with a chain of causes."""
    last: BaseException = error
    for cause in causes:
        last.__cause__ = cause
        last = cause
    return error


REQUEST: Any = SimpleNamespace(real_url="https://host.example/v1?key=secret")


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (
            caused(aiohttp.ClientResponseError(REQUEST, (), message="bad"), http_exceptions.BadStatusLine("SSH-2.0")),
            InvalidResponse,
            "'host.example' sent a response that is not HTTP (bad): check the address",
        ),
        (
            caused(aiohttp.ClientResponseError(REQUEST, (), message="long"), http_exceptions.LineTooLong(b"x", 8190)),
            ResponseCutOff,
            "the answer of 'host.example' broke off (long)",
        ),
        (
            caused(
                aiohttp.ClientResponseError(REQUEST, (), message="bad"),
                ValueError("between"),
                http_exceptions.ContentEncodingError("no gzip"),
            ),
            InvalidResponse,
            "the answer of 'host.example' is not compressed as its header says (bad)",
        ),
        (
            aiohttp.ClientProxyConnectionError(KEY, OSError(111, "refused")),
            HostUnreachable,
            "the proxy on the way to 'host.example' cannot be reached (refused): see HTTPS_PROXY and NO_PROXY",
        ),
        (
            aiohttp.ClientHttpProxyError(REQUEST, (), message="Forbidden"),
            HostUnreachable,
            "the proxy on the way to 'host.example' refuses the request (Forbidden): see HTTPS_PROXY and NO_PROXY",
        ),
        (
            aiohttp.InvalidUrlClientError("//x"),
            NetError,
            "cannot send a request to the host 'host.example': give a complete URL, such as 'https://example.com/v1'",
        ),
        (
            aiohttp.NonHttpUrlClientError("ftp://x"),
            NetError,
            "cannot send a request to the host 'host.example': give a URL that begins with 'https://' or 'http://'",
        ),
    ],
)
def test_a_request_that_fails_is_told_by_what_caused_it(error: Exception, kind: type[NetError], told: str) -> None:
    ours = convert_request_error(error, "host.example", Deadlines())
    assert (type(ours), str(ours)) == (kind, told)


def test_an_answer_that_ends_early_is_told_by_what_caused_it() -> None:
    encoding = caused(aiohttp.ClientPayloadError("400"), http_exceptions.ContentEncodingError("no gzip"))
    length = caused(aiohttp.ClientPayloadError("400"), http_exceptions.ContentLengthError("too short"))
    told = [convert_read_error(each, "host") for each in (encoding, length, aiohttp.ClientPayloadError())]
    assert [(type(each), str(each)) for each in told] == [
        (InvalidResponse, "the answer of 'host' is not compressed as its header says (400)"),
        (ResponseCutOff, "the answer of 'host' broke off (400)"),
        (ResponseCutOff, "the answer of 'host' broke off (ClientPayloadError)"),
    ]


@pytest.mark.parametrize(
    ("error", "is_dropped"),
    [
        (aiohttp.ServerDisconnectedError(), True),
        (aiohttp.ClientOSError(errno.ECONNRESET, "reset"), True),
        (aiohttp.ClientOSError(errno.EPIPE, "pipe"), True),
        (aiohttp.ClientOSError(errno.ENETUNREACH, "unreachable"), False),
        (aiohttp.ClientConnectorError(KEY, OSError(errno.ECONNREFUSED, "refused")), False),
    ],
)
def test_a_connection_was_dropped_if_it_was_there(error: Any, is_dropped: bool) -> None:
    assert is_connection_dropped(error) is is_dropped


@pytest.mark.parametrize(("size", "shown"), [(200, 200), (201, 200)])
def test_a_reason_has_at_most_200_characters(size: int, shown: int) -> None:
    told = str(convert_read_error(ValueError("x" * size), "host"))
    assert told == f"the answer of 'host' broke off ({'x' * shown})"
