"""The socket of the server, and its encryption."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx2
import pytest

from perdure import ConfigError
from perdure._mcp.server.listener import listen
from perdure.mcp import serve_http
from tests.mcp_server.served_tools import TOKENS, WAIT_SECONDS, running, shout
from tests.wire.certificate import write_certificate


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """The files of a certificate for localhost, and of its key."""
    return write_certificate(tmp_path, "localhost")


@pytest.mark.packages("cryptography")
async def test_a_server_with_a_certificate_is_encrypted_and_may_be_reached_by_other_machines(
    certificate: tuple[str, str],
) -> None:
    certificate_file, key_file = certificate
    files = {"certificate_file": certificate_file, "key_file": key_file}
    remote = {"host": "0.0.0.0", "allow_remote": True, "hosts": ["localhost"]}
    async with running([shout], **files, **remote) as url:
        assert url.startswith("https://0.0.0.0:")
        trusted = ssl.create_default_context(cafile=certificate_file)
        async with httpx2.AsyncClient(verify=trusted, trust_env=False, timeout=WAIT_SECONDS) as http:
            answer = await http.post(url.replace("0.0.0.0", "localhost"))
    assert answer.status_code == 401


@pytest.mark.packages("cryptography")
@pytest.mark.parametrize("missing", ["certificate_file", "key_file"])
async def test_a_certificate_without_its_key_is_no_encryption(missing: str, certificate: tuple[str, str]) -> None:
    files: dict[str, Any] = dict(zip(("certificate_file", "key_file"), certificate, strict=True))
    del files[missing]
    with pytest.raises(ConfigError, match="must not cross a network unencrypted"):
        await serve_http([shout], tokens=TOKENS, host="0.0.0.0", allow_remote=True, hosts=["a.b"], port=0, **files)


async def test_a_server_that_cannot_read_its_certificate_says_so(tmp_path: Path) -> None:
    file = str(tmp_path / "missing.pem")
    async with asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(FileNotFoundError):
            await serve_http([shout], tokens=TOKENS, port=0, certificate_file=file, key_file=file)


def test_connections_send_small_pieces_at_once() -> None:
    with listen("127.0.0.1", 0) as made:
        assert made.family == socket.AF_INET
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    with listen("::1", 0) as made:
        assert made.family == socket.AF_INET6
