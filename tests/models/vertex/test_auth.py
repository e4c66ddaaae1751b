"""Authentication at Google Cloud: tokens that are given, and default credentials, against a token server of our own."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import AuthFailed, ConfigError, ProviderDown
from perdure._models.wires.vertex import GoogleAuth
from perdure.models import HttpTransport
from tests.models.canned import CannedTransport
from tests.wire.server import Playback, Reply, json_reply

URL = "https://aiplatform.googleapis.com/v1/x"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("VERTEX_ACCESS_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("PATH", "")  # without gcloud


def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token_url: str) -> Any:
    """Write the file of a service account with a new key, and name it in the environment; return the public key."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    told = {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "k1",
        "private_key": text,
        "client_email": "robot@p.iam.gserviceaccount.com",
        "token_uri": token_url,
    }
    name_credentials(tmp_path, monkeypatch, told)
    return key.public_key()


def name_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Any) -> None:
    file = tmp_path / "credentials.json"
    file.write_bytes(msgspec.json.encode(told))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))


def token(text: str, seconds: int = 3600) -> Any:
    return json_reply({"access_token": text, "expires_in": seconds, "token_type": "Bearer"})


async def test_a_token_that_is_given_is_sent_and_cannot_be_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    auth = GoogleAuth(token=" ya29 ")
    assert await auth.headers(URL, b"") == {"authorization": "Bearer ya29"}
    assert not await auth.renew()
    assert "ya29" not in repr(auth) + auth.identity
    monkeypatch.setenv("VERTEX_ACCESS_TOKEN", "other")
    assert await GoogleAuth().headers(URL, b"") == {"authorization": "Bearer other"}
    assert GoogleAuth().identity != auth.identity


@pytest.mark.parametrize("home", [".", "~"])
async def test_a_repository_does_not_bring_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str
) -> None:
    """Without a home folder, Google's library would take the working folder for one."""
    for place in (tmp_path, tmp_path / "~"):
        (place / ".config" / "gcloud").mkdir(parents=True)
        (place / ".config" / "gcloud" / "application_default_credentials.json").write_text("{}")
    monkeypatch.delenv("CLOUDSDK_CONFIG")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", home)
    with pytest.raises(AuthFailed, match="there is no home folder, and they are in the working folder; set HOME"):
        await GoogleAuth().headers(URL, b"")


async def test_a_function_is_asked_for_each_request_and_after_a_rejection() -> None:
    tokens = iter(["t1", "t2"])
    auth = GoogleAuth(token=lambda: next(tokens))
    assert await auth.headers(URL, b"") == {"authorization": "Bearer t1"}
    assert await auth.renew()
    assert await auth.headers(URL, b"") == {"authorization": "Bearer t2"}
    assert auth.identity.startswith("google:function")
    assert repr(auth) == "GoogleAuth(token)"


async def test_a_function_that_returns_no_token_is_told() -> None:
    with pytest.raises(AuthFailed, match="returned no token"):
        await GoogleAuth(token=lambda: "").headers(URL, b"")


@pytest.mark.packages("google.auth")
async def test_a_service_account_signs_for_its_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.hashes import SHA256

    async with Playback([token("t1"), token("t2")]) as server, aclosing(HttpTransport()) as transport:
        public = service_account(tmp_path, monkeypatch, f"{server.base_url}/token")
        auth = GoogleAuth(transport=transport)
        assert await auth.headers(URL, b"") == {"authorization": "Bearer t1"}
        assert await auth.headers(URL, b"") == {"authorization": "Bearer t1"}  # without another request
        assert await auth.renew()
        assert await auth.headers(URL, b"") == {"authorization": "Bearer t2"}
        first, second = server.received
    form = dict(each.split("=", 1) for each in first.body.decode().split("&"))
    assert form["grant_type"].endswith("jwt-bearer")
    signed, _, signature = form["assertion"].rpartition(".")
    public.verify(decode64(signature), signed.encode(), padding.PKCS1v15(), SHA256())
    claims = json.loads(decode64(signed.split(".")[1]))
    assert claims["iss"] == "robot@p.iam.gserviceaccount.com"
    assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    assert second.body != b""
    assert repr(auth) == "GoogleAuth(default credentials)"
    assert auth.identity == f"google:{tmp_path / 'credentials.json'}"


def decode64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@pytest.mark.packages("google.auth")
async def test_a_login_of_gcloud_is_refreshed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    login = {
        "type": "authorized_user",
        "client_id": "i",
        "client_secret": "s",
        "refresh_token": "r",
        "quota_project_id": "q",
    }
    name_credentials(tmp_path, monkeypatch, login)
    async with Playback([token("t1")]) as server, aclosing(HttpTransport()) as transport:
        monkeypatch.setattr("google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT", f"{server.base_url}/token")
        told = await GoogleAuth(transport=transport).headers(URL, b"")
        assert b"refresh_token=r" in server.received[0].body
    assert told == {"authorization": "Bearer t1", "x-goog-user-project": "q"}


@pytest.mark.packages("google.auth")
async def test_without_credentials_the_error_says_what_to_do() -> None:
    with pytest.raises(AuthFailed, match="gcloud auth application-default login"):
        await GoogleAuth(transport=CannedTransport()).headers(URL, b"")


@pytest.mark.packages("google.auth")
async def test_a_refused_account_and_an_unreachable_server_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = json_reply({"error": "invalid_grant", "error_description": "Account not found"}, status=400)
    async with Playback([refusal]) as server, aclosing(HttpTransport()) as transport:
        service_account(tmp_path, monkeypatch, f"{server.base_url}/token")
        with pytest.raises(AuthFailed, match="Account not found"):
            await GoogleAuth(transport=transport).headers(URL, b"")
    service_account(tmp_path, monkeypatch, "http://127.0.0.1:9/token")
    async with aclosing(HttpTransport()) as transport:
        with pytest.raises(ProviderDown, match="cannot be reached"):
            await GoogleAuth(transport=transport).headers(URL, b"")


async def test_without_google_auth_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> Any:
        raise ImportError

    monkeypatch.setattr("perdure._models.wires.vertex.importlib.import_module", missing)
    with pytest.raises(ConfigError, match=r"perdure\[vertex\]"):
        await GoogleAuth(transport=CannedTransport()).headers(URL, b"")


def federated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base_url: str) -> None:
    """Name the credentials of a federated identity, whose token comes from an address."""
    told = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{base_url}/token",
        "credential_source": {"url": f"{base_url}/subject", "headers": {"x-own": "1"}},
    }
    name_credentials(tmp_path, monkeypatch, told)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")


@pytest.mark.packages("google.auth", "requests")
async def test_a_federated_identity_is_fetched_and_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Reply(b"own-token", media_type="text/plain", framing="length")
    async with Playback([subject, token("t1")]) as server, aclosing(HttpTransport()) as transport:
        federated(tmp_path, monkeypatch, server.base_url)
        assert await GoogleAuth(transport=transport).headers(URL, b"") == {"authorization": "Bearer t1"}
        first, second = server.received
    assert (first.method, first.path, first.headers["x-own"]) == ("GET", "/subject", "1")
    assert (second.method, second.path) == ("POST", "/token")
    assert b"subject_token=own-token" in second.body


@pytest.mark.packages("google.auth", "requests")
async def test_the_account_of_the_machine_is_asked_for_by_its_metadata_server(monkeypatch: pytest.MonkeyPatch) -> None:
    from google.auth.compute_engine import _metadata

    def answer(request: Any) -> Reply:
        said = {"/computeMetadata/v1/project/project-id": "p", "/": ""}
        if (text := said.get(request.path.partition("?")[0])) is not None:
            headers = {"metadata-flavor": "Google"}
            return Reply(text.encode(), headers=headers, media_type="application/text", framing="length")
        told = {"access_token": "of-machine", "expires_in": 3600} if "/token" in request.path else {"email": "m@p"}
        return json_reply(told, metadata_flavor="Google")

    async with Playback(answer) as server, aclosing(HttpTransport()) as transport:
        host = server.base_url.removeprefix("http://")
        monkeypatch.setattr(_metadata, "_NO_GCE_CHECK", False)
        monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", host)
        monkeypatch.setenv("GCE_METADATA_IP", host)
        assert await GoogleAuth(transport=transport).headers(URL, b"") == {"authorization": "Bearer of-machine"}
    assert {each.headers["metadata-flavor"] for each in server.received} == {"Google"}


WITHOUT_REQUESTS = """
import asyncio, sys
sys.modules["requests"] = None
from perdure import PerdureError
from perdure._models.wires import vertex as auth
from perdure.models import HttpTransport
auth.find_spec = lambda _: None
try:
    asyncio.run(auth.GoogleAuth(transport=HttpTransport()).headers("https://aiplatform.googleapis.com", b""))
except PerdureError as error:
    print(type(error).__name__, " ".join(str(error).split()))
"""


@pytest.mark.packages("google.auth")
def test_credentials_for_which_a_package_is_missing_name_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_error() -> str:
        done = subprocess.run([sys.executable, "-c", WITHOUT_REQUESTS], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert read_error().startswith("AuthFailed there are no credentials for Vertex AI (")
    assert read_error().endswith("; for the account of this machine, pip install 'perdure[vertex]'")
    federated(tmp_path, monkeypatch, "http://127.0.0.1:9")
    said = "ConfigError these credentials for Vertex AI need a package: "
    assert re.fullmatch(re.escape(said) + r".*requests.*; pip install 'perdure\[vertex\]'", read_error())


@pytest.mark.packages("google.auth", "requests")
async def test_a_transport_that_cannot_get_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federated(tmp_path, monkeypatch, "http://127.0.0.1:9")
    transport = CannedTransport()
    with pytest.raises(ProviderDown) as caught:
        await GoogleAuth(transport=transport).headers(URL, b"")
    assert str(caught.value) == (
        "no token for Vertex AI: Google cannot be reached: "
        f"the transport {transport!r} cannot send GET requests, which Google's credentials need; try again"
    )
    assert transport.posted == []


async def test_what_identifies_credentials_does_not_tell_them(monkeypatch: pytest.MonkeyPatch) -> None:
    auth = GoogleAuth(token="ya29")
    assert auth.identity == f"google:{hashlib.sha256(b'ya29').hexdigest()[:16]}"
    assert repr(auth) == "GoogleAuth(token)"
    monkeypatch.setenv("VERTEX_ACCESS_TOKEN", " ya29 ")
    assert GoogleAuth().identity == auth.identity


@pytest.mark.packages("google.auth")
async def test_a_token_that_has_expired_is_refreshed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Playback([token("t1", -1), token("t2")]) as server, aclosing(HttpTransport()) as transport:
        service_account(tmp_path, monkeypatch, f"{server.base_url}/token")
        auth = GoogleAuth(transport=transport)
        assert await auth.headers(URL, b"") == {"authorization": "Bearer t1"}
        assert await auth.headers(URL, b"") == {"authorization": "Bearer t2"}
        assert await auth.headers(URL, b"") == {"authorization": "Bearer t2"}
        assert len(server.received) == 2


@pytest.mark.packages("google.auth")
async def test_a_refusal_is_told_on_one_line_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = json_reply({"error": "invalid_grant", "error_description": "Account not found\nmore"}, status=400)
    async with Playback([refusal]) as server, aclosing(HttpTransport()) as transport:
        service_account(tmp_path, monkeypatch, f"{server.base_url}/token")
        with pytest.raises(AuthFailed) as caught:
            await GoogleAuth(transport=transport).headers(URL, b"")
    assert str(caught.value) == (
        "Google issues no token for Vertex AI (invalid_grant: Account not found): "
        "run `gcloud auth application-default login`, set GOOGLE_APPLICATION_CREDENTIALS to the file of a service "
        "account, set VERTEX_ACCESS_TOKEN, or pass api_key=… (a token, or a function that returns one)"
    )


@pytest.mark.packages("google.auth")
async def test_an_empty_project_is_not_billed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    login = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r"}
    name_credentials(tmp_path, monkeypatch, {**login, "quota_project_id": ""})
    transport = CannedTransport(b'{"access_token": "t1", "expires_in": 3600, "token_type": "Bearer"}')
    assert await GoogleAuth(transport=transport).headers(URL, b"") == {"authorization": "Bearer t1"}
