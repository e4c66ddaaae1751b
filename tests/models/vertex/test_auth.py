"""Authentication at Google Cloud: tokens that are given, and default credentials, against a token server of our own."""

import base64
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.core.error import AuthFailed, ConfigError, ProviderDown
from perdure.models.vertex.auth import GoogleAuth
from perdure.net.pooled_http_transport import HttpTransport
from tests.models.canned import CannedTransport
from tests.wire.server import Playback, json_reply

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

    monkeypatch.setattr("perdure.models.vertex.auth.importlib.import_module", missing)
    with pytest.raises(ConfigError, match=r"perdure\[vertex\]"):
        await GoogleAuth(transport=CannedTransport()).headers(URL, b"")
