"""Certificates that prove nothing, and encrypted pages that lead to what is not: `web_fetch` and the browser."""

import asyncio
import base64
import contextlib
import datetime as dt
import hashlib
import ipaddress
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp.connector
import pytest
import pytest_asyncio

from perdure import Agent, Permissions, ToolError, allow, deny
from perdure._tools.browser import chromium
from perdure.hosts import EgressPolicy, LocalBrowser, LocalWeb
from perdure.permissions import UrlTarget, allow_all
from perdure.testing import ScriptedModel, call
from perdure.tools import browser_tools, web_fetch_tool

pytestmark = [
    pytest.mark.packages("cryptography"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]
HERE = EgressPolicy(private_networks=["127.0.0.1"], ports=None)
USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


class Authority:
    """A certificate authority of the tests, in a folder."""

    def __init__(self, folder: Path) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        self._key = ec.generate_private_key(ec.SECP256R1())
        self.folder = folder
        self.file = folder / "authority.pem"
        folder.mkdir(exist_ok=True)
        self.file.write_bytes(self._sign("test authority", self._key, dt.timedelta(-9), dt.timedelta(9), None))

    def context(self, name: str = "127.0.0.1", start: float = -1, end: float = 1) -> ssl.SSLContext:
        """The TLS settings of a server with a certificate for a name, valid from and until these days from now."""
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        key = ec.generate_private_key(ec.SECP256R1())
        file = self.folder / f"{name}-{start}-{end}.pem".replace("*", "any")
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file.write_bytes(pem + self._sign(name, key, dt.timedelta(start), dt.timedelta(end), name))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        self.fingerprint = fingerprint(key)
        return context

    def _sign(self, name: str, key: Any, start: dt.timedelta, end: dt.timedelta, host: str | None) -> bytes:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.serialization import Encoding

        now = dt.datetime.now(dt.UTC)
        made = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named("test authority"))
        made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
        made = made.not_valid_before(now + start).not_valid_after(now + end)
        made = made.add_extension(x509.BasicConstraints(ca=host is None, path_length=None), critical=True)
        ours = self._key.public_key()
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        made = made.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ours), critical=False)
        usage = {each: each == ("key_cert_sign" if host is None else "digital_signature") for each in USAGES}
        made = made.add_extension(x509.KeyUsage(**usage), critical=True)
        if host is not None:
            try:
                other: Any = x509.IPAddress(ipaddress.ip_address(host))
            except ValueError:
                other = x509.DNSName(host)
            made = made.add_extension(x509.SubjectAlternativeName([other]), critical=False)
        return made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)


def named(text: str) -> Any:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def fingerprint(key: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(public).digest()).decode()


class Server:
    """An HTTP server, with TLS if it has settings for it, that notes what it was asked for."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked: list[str] = []


@contextlib.asynccontextmanager
async def serving(answers: dict[str, str], context: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Serve pages by path; one that begins with `->` is a redirect."""
    served: list[Server] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ", 2)[1]
            served[0].asked.append(path)
            page = answers.get(path.partition("?")[0], "x")
            status, extra = ("302 Found", f"location: {page[2:]}\r\n") if page.startswith("->") else ("200 OK", "")
            kind = "text/javascript" if path.endswith(".js") else "text/html"
            body = page.encode()
            writer.write(
                f"HTTP/1.1 {status}\r\n{extra}content-type: {kind}\r\ncontent-length: {len(body)}\r\n"
                "connection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        served.append(Server(server.sockets[0].getsockname()[1]))
        yield served[0]


@pytest.fixture
def authority(tmp_path, monkeypatch):
    """An authority that this process trusts, as if it were one of the system's."""
    made = Authority(tmp_path / "authority")
    trusting = ssl.create_default_context(cafile=str(made.file))
    trusting.set_alpn_protocols(("http/1.1",))
    monkeypatch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", trusting)
    return made


async def fetch(url: str) -> str:
    async with LocalWeb(HERE) as web:
        model = ScriptedModel(call("web_fetch", url=url), "Done.")
        outcome = await Agent(model, tools=[web_fetch_tool(web)], permission=allow_all).run("Go.")
    found = outcome.tool_calls[0].result
    return "" if found is None else found.text


async def test_a_page_with_a_certificate_that_proves_its_name_is_fetched(authority):
    async with serving({"/": "the page"}, authority.context()) as server:
        assert "the page" in await fetch(f"https://127.0.0.1:{server.port}/")


@pytest.mark.parametrize(
    ("certificate", "told"),
    [
        ({"name": "127.0.0.2"}, "mismatch"),
        ({"name": "bank.example"}, "mismatch"),
        ({"name": "*"}, "mismatch"),
        ({"start": -3, "end": -1}, "expired"),
        ({"start": 1, "end": 3}, "not yet valid"),
    ],
)
async def test_a_page_whose_certificate_proves_nothing_is_not_asked_for(authority, certificate, told):
    async with serving({"/": "the page"}, authority.context(**certificate)) as server:
        shown = await fetch(f"https://127.0.0.1:{server.port}/?q=private")
        assert "cannot be trusted" in shown
        assert told in shown
        assert server.asked == []


async def test_an_authority_that_nobody_trusts_proves_nothing(authority, tmp_path):
    async with serving({"/": "the page"}, Authority(tmp_path / "other").context()) as server:
        assert "cannot be trusted" in await fetch(f"https://127.0.0.1:{server.port}/")
        assert server.asked == []


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
async def test_old_versions_of_tls_are_refused(authority):
    context = authority.context()
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    async with serving({"/": "the page"}, context) as server:
        assert "cannot be fetched" in await fetch(f"https://127.0.0.1:{server.port}/")
        assert server.asked == []


async def test_a_redirect_to_what_is_not_encrypted_is_not_followed(authority):
    async with (
        serving({}) as plain,
        serving({"/": f"->http://127.0.0.1:{plain.port}/stolen"}, authority.context()) as server,
    ):
        shown = await fetch(f"https://127.0.0.1:{server.port}/")
        assert "redirects from https to http" in shown
        assert plain.asked == []


async def test_a_redirect_to_a_certificate_that_proves_nothing_is_not_followed(authority):
    async with (
        serving({}, authority.context("bank.example")) as false,
        serving({"/": f"->https://127.0.0.1:{false.port}/"}, authority.context()) as server,
    ):
        await fetch(f"https://127.0.0.1:{server.port}/")
        assert false.asked == []


# -- the browser -------------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trusting_browser(tmp_path_factory) -> AsyncIterator[tuple[LocalBrowser, ssl.SSLContext]]:
    """A browser, and the TLS settings of a server whose key alone it trusts without an authority."""
    made = Authority(tmp_path_factory.mktemp("https") / "authority")
    context = made.context("shop.example")
    build = chromium.build_flags

    def trust(*arguments: Any, **options: Any) -> list[str]:
        return [f"--ignore-certificate-errors-spki-list={made.fingerprint}", *build(*arguments, **options)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chromium, "build_flags", trust)
        async with LocalBrowser(HERE, look_up=find_here) as browser:
            yield browser, context


async def find_here(_host: str, _port: int) -> list[str]:
    """Every name is this machine: a browser takes loopback addresses themselves for safe without encryption."""
    return ["127.0.0.1"]


MIXED = """<title>Mixed</title><p id=shown>none</p>
<script>window.seen = []</script>
<script src="http://plain.example:PLAIN/script.js"></script>
<iframe src="http://plain.example:PLAIN/frame"></iframe>
<link rel=stylesheet href="http://plain.example:PLAIN/style.css">
<object data="http://plain.example:PLAIN/object"></object>
<script>
fetch("http://plain.example:PLAIN/fetch").catch(() => 0);
try { new WebSocket("ws://plain.example:PLAIN/socket") } catch (error) {}
try { new Worker("http://plain.example:PLAIN/worker.js") } catch (error) {}
navigator.sendBeacon("http://plain.example:PLAIN/beacon", "private");
document.getElementById("shown").textContent = "asked";
</script>"""


@pytest.mark.needs("chromium")
@pytest.mark.packages("playwright")
async def test_an_encrypted_page_loads_nothing_that_is_not(trusting_browser):
    browser, context = trusting_browser
    async with serving({}) as plain, serving({"/": MIXED.replace("PLAIN", str(plain.port))}, context) as server:
        await browser.navigate("s", UrlTarget.of(f"https://shop.example:{server.port}/"))
        assert "asked" in repr(await browser.take_snapshot("s"))
        assert plain.asked == []


@pytest.mark.needs("chromium")
@pytest.mark.packages("playwright")
async def test_a_rule_hides_what_an_encrypted_page_leads_to_without_encryption(trusting_browser):
    browser, context = trusting_browser
    async with serving({"/": "Fake shop"}) as plain:
        leads = {
            "/redirect": f"->http://shop.example:{plain.port}/",
            "/script": f"<script>location = 'http://shop.example:{plain.port}/'</script>",
        }
        async with serving(leads, context) as server:
            rules = Permissions(allow("browser_*"), deny("browser_*", target="http://**"))
            for path in leads:
                url = f"https://shop.example:{server.port}{path}"
                model = ScriptedModel(call("browser_navigate", url=url), call("browser_snapshot"), "Done.")
                agent = Agent(model, tools=browser_tools(browser), permission=rules)
                calls = (await agent.run("Go.")).tool_calls
                assert "Fake shop" not in repr([each.result for each in calls])


@pytest.mark.needs("chromium")
@pytest.mark.packages("playwright")
async def test_a_certificate_for_another_name_is_not_shown_by_the_browser(trusting_browser, tmp_path):
    browser, _ = trusting_browser
    for each in ({"name": "bank.example"}, {"start": -3, "end": -1}, {"start": 1, "end": 3}):
        async with serving({"/": "the page"}, Authority(tmp_path / "others").context(**each)) as server:
            with pytest.raises(ToolError, match="ERR_CERT_"):
                await browser.navigate("s", UrlTarget.of(f"https://shop.example:{server.port}/?q=private"))
            assert server.asked == []
