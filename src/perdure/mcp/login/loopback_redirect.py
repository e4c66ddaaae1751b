"""Redirect URL of an OAuth login: a small HTTP server on this machine that waits for the browser's answer."""

import asyncio
import hmac
from collections.abc import Mapping
from typing import Final, Self
from urllib.parse import parse_qsl, urlsplit

PATH: Final = "/callback"
"""The path of the redirect URL, unless a login has one of its own."""
_MAX_LINE_BYTES: Final = 16 * 1024
_REQUEST_SECONDS: Final = 10.0
_TITLE: Final = "<!doctype html><meta charset=utf-8><title>Perdure</title>"
_PAGE: Final = f"{_TITLE}<p>You can close this page, and return to the terminal.</p>"


class LoopbackRedirect:
    """HTTP server on 127.0.0.1, open in an `async with` block, to which the browser returns after an OAuth login.

    Only an answer with the `state` of the login counts: any page in the browser can send others.
    """

    def __init__(self, state: str, port: int = 0, path: str = PATH) -> None:
        self._state = state
        self._port = port
        self._path = path
        self._server: asyncio.Server | None = None
        self._answer: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        self.url = ""
        """The redirect URL, while it listens."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=_MAX_LINE_BYTES)
        self._port = int(self._server.sockets[0].getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}{self._path}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self._answer.cancel()

    async def wait(self) -> Mapping[str, str]:
        """Wait for the answer, and return its fields."""
        return await asyncio.shield(self._answer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status, page = "400 Bad Request", ""
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                words = (await reader.readline()).decode("latin-1").split()
                host = await _read_host(reader)
            if host != f"127.0.0.1:{self._port}":
                status = "421 Misdirected Request"
            elif words[:1] == ["GET"] and urlsplit(words[1]).path == self._path:
                pairs = parse_qsl(urlsplit(words[1]).query)
                fields = dict(pairs)
                if len(fields) == len(pairs) and self._is_of_login(fields) and not self._answer.done():
                    self._answer.set_result(fields)
                    status, page = "200 OK", _PAGE
            else:
                status = "404 Not Found"
        except (OSError, ValueError, IndexError, asyncio.IncompleteReadError):
            pass
        finally:
            await _send_page(writer, status, page)

    def _is_of_login(self, fields: Mapping[str, str]) -> bool:
        """Return True if an answer has the `state` that only the browser of this login was given."""
        return hmac.compare_digest(fields.get("state", "").encode(), self._state.encode())


async def _read_host(reader: asyncio.StreamReader) -> str:
    """Read the headers of a request, and return the one that names the host."""
    host = ""
    for _ in range(100):
        line = (await reader.readline()).decode("latin-1").strip()
        if not line:
            return host
        name, _, value = line.partition(":")
        if name.lower() == "host":
            host = value.strip()
    raise ValueError("too many headers")


async def _send_page(writer: asyncio.StreamWriter, status: str, page: str) -> None:
    body = page.encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
        "content-security-policy: default-src 'none'\r\nreferrer-policy: no-referrer\r\ncache-control: no-store\r\n"
        "connection: close\r\n\r\n"
    )
    try:
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    except OSError:
        return
