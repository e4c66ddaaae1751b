"""Requests of `EgressClient` with the C library's own lookups, a DNS server that lies, and TLS with a CA of its own.

Started by test_closed_network.py in a closed network: `python -m tests.security.egress_attack_program`.
"""

import asyncio
import datetime as dt
import json
import os
import ssl
import sys
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from perdure._io.http.transport import NetError
from perdure.hosts import EgressClient, EgressPolicy
from tests.security.closed_network import PUBLIC, ClosedNetwork

PRIVATE = ("127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "100.64.0.1")


def make_certificate(folder: Path, name: str, hosts: list[str], issuer: tuple | None = None) -> tuple:
    """Write a certificate and its key, signed by an issuer or by itself; return both."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    issued_by = (subject, key) if issuer is None else (issuer[0].subject, issuer[1])
    usage = dict.fromkeys(("key_cert_sign", "crl_sign"), issuer is None)
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    unused = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issued_by[0])
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, **usage, **unused), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issued_by[1].public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in hosts]), critical=False)
        .sign(issued_by[1], hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(pem) + key.private_bytes(pem, *plain))
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(pem))
    return certificate, key


def build_tls(folder: Path) -> ssl.SSLContext:
    """Return the TLS of the servers: a certificate of our CA for some names, of another CA for `untrusted.example`."""
    ca, other = [make_certificate(folder, name, [name]) for name in ("ca", "other")]
    make_certificate(folder, "good", ["tls.example", "*.rebind.example"], ca)
    make_certificate(folder, "bad", ["untrusted.example"], other)
    contexts = {name: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) for name in ("good", "bad")}
    for name, context in contexts.items():
        context.load_cert_chain(folder / f"{name}.pem")

    def choose(connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        if name == "untrusted.example":
            connection.context = contexts["bad"]

    contexts["good"].sni_callback = choose
    os.environ["SSL_CERT_FILE"] = str(folder / "ca.crt")
    return contexts["good"]


def respond(path: str) -> bytes:
    """Answer a request to any address."""
    if path.startswith("/to/"):
        head = f"HTTP/1.1 302 Found\r\nLocation: {path.removeprefix('/to/')}\r\nContent-Length: 0\r\n"
        return f"{head}Connection: close\r\n\r\n".encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"


async def main() -> None:
    """Make the requests, and print what became of them."""
    asked: dict[str, int] = {}

    def look_up(name: str) -> tuple[str, ...]:
        asked[name] = asked.get(name, 0) + 1
        if name.endswith(".rebind.example"):
            return (PUBLIC,) if asked[name] % 2 else (PRIVATE[len(asked) % len(PRIVATE)],)
        return (PUBLIC,)

    results: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with ClosedNetwork(respond, look_up, tls=build_tls(Path(folder))) as network:
            urls = [
                *("https://tls.example/", "https://untrusted.example/", "https://wrong-name.example/"),
                *("https://tls.example/to/https://r0.rebind.example/", "https://tls.example/to/http://tls.example/"),
                *[
                    f"{scheme}://r{place}.rebind.example/{number}"
                    for scheme in ("http", "https")
                    for place in range(1, 11)
                    for number in range(4)
                ],
            ]
            for url in urls:
                client = EgressClient(EgressPolicy())  # a new one, which has no open connection
                try:
                    results[url] = (await client.fetch(url)).body.decode()
                except NetError as error:
                    results[url] = type(error).__name__
                await client.aclose()
    found = {"results": results, "connections": network.connections, "names": asked, "paths": len(network.paths)}
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    asyncio.run(main())
