"""What aiohttp raises is told in our words, with the host and what to do."""

import socket
import ssl
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from perdure.net.aiohttp_errors import convert_read_error, convert_request_error
from perdure.net.error import HostUnreachable, HttpTimeoutExceeded, InvalidResponse, NetError
from perdure.net.transport import Deadlines

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
