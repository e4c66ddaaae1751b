"""Who asks Bedrock: a token, or a signature."""

import hashlib
import hmac
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from perdure import AuthFailed, ConfigError
from perdure._models.wires.bedrock.aws import BedrockAuth, EventStreamParser, get_region

URL = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/us.amazon.nova-lite-v1%3A0/converse-stream"
BODY = b'{"messages":[]}'


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = "BEARER_TOKEN_BEDROCK ACCESS_KEY_ID SECRET_ACCESS_KEY SESSION_TOKEN PROFILE REGION DEFAULT_REGION"
    for name in names.split():
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def keys(monkeypatch: pytest.MonkeyPatch, key: str = "AKIDEXAMPLE", token: str = "") -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    if token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)


def expected_signature(headers: Mapping[str, str], region: str) -> str:
    """Signature version 4, by its description."""
    address = urlsplit(URL)
    signed = sorted({"host": address.netloc, **{k: v for k, v in headers.items() if k != "authorization"}}.items())
    names = ";".join(name for name, _ in signed)
    lines = "".join(f"{name}:{value}\n" for name, value in signed)
    path = quote(address.path, safe="/-_.~")
    canonical = f"POST\n{path}\n\n{lines}\n{names}\n{hashlib.sha256(BODY).hexdigest()}"
    date = headers["x-amz-date"]
    scope = f"{date[:8]}/{region}/bedrock/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = b"AWS4secret"
    for part in (date[:8], region, "bedrock", "aws4_request", text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return f"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/{scope}, SignedHeaders={names}, Signature={key.hex()}"


async def test_a_token_is_said_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "abc")
    keys(monkeypatch)
    auth = BedrockAuth()
    assert await auth.headers(URL, BODY) == {"authorization": "Bearer abc"}
    assert await BedrockAuth(token="xyz").headers(URL, BODY) == {"authorization": "Bearer xyz"}
    assert not await auth.renew()


@pytest.mark.parametrize("token", ["", "session-token"])
async def test_a_request_is_signed_with_the_keys_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    keys(monkeypatch, token=token)
    headers = await BedrockAuth().headers(URL, BODY)
    assert headers.get("x-amz-security-token", "") == token
    assert headers["authorization"] == expected_signature(headers, "eu-west-1")


async def test_a_request_is_signed_with_the_keys_of_a_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "[work]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = secret\n"
    (tmp_path / "credentials").write_text(text)
    headers = await BedrockAuth(profile_name="work").headers(URL, BODY)
    assert headers["authorization"] == expected_signature(headers, "eu-west-1")
    monkeypatch.setenv("AWS_PROFILE", "work")
    headers = await BedrockAuth().headers(URL, BODY)
    assert headers["authorization"] == expected_signature(headers, "eu-west-1")


@pytest.mark.parametrize("home", [".", "~"])
async def test_a_repository_does_not_bring_a_program_that_gives_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str
) -> None:
    """Without a home folder, botocore would take the working folder for one."""
    for place in (tmp_path, tmp_path / "~"):
        (place / ".aws").mkdir(parents=True)
        (place / ".aws" / "config").write_text(f"[default]\ncredential_process = touch {tmp_path}/ran\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", home)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name)
    with pytest.raises(AuthFailed, match="AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID"):
        await BedrockAuth().headers(URL, BODY)
    assert not (tmp_path / "ran").exists()


async def test_without_credentials_the_error_says_what_to_set() -> None:
    with pytest.raises(AuthFailed, match="AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID"):
        await BedrockAuth().headers(URL, BODY)


async def test_keys_are_looked_for_again_when_they_do_not_work_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    keys(monkeypatch)
    auth = BedrockAuth()
    assert not await auth.renew()
    await auth.headers(URL, BODY)
    assert not await auth.renew()
    keys(monkeypatch, "AKIDANOTHER")
    assert await auth.renew()
    assert "AKIDANOTHER" in (await auth.headers(URL, BODY))["authorization"]


async def test_credentials_that_run_out_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    keys(monkeypatch)
    auth = BedrockAuth()
    await auth.headers(URL, BODY)

    class Expiring:
        asked = 0

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def refresh_needed(self) -> bool:
            return self.asked == 0

        def get_frozen_credentials(self) -> Any:
            self.asked += 1
            return self.inner.get_frozen_credentials()

    auth._credentials = Expiring(auth._credentials)
    for asked in (1, 2):
        await auth.headers(URL, BODY)
        assert auth._credentials.asked == asked


def test_a_key_is_named_without_being_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {BedrockAuth().identity, BedrockAuth(profile_name="a").identity, BedrockAuth(token="t").identity}
    keys(monkeypatch)
    names.add(BedrockAuth().identity)
    assert len(names) == 4
    assert not any("AKIDEXAMPLE" in name for name in names)
    assert repr(BedrockAuth(token="t")) == "BedrockAuth(token)"
    assert repr(BedrockAuth()) == "BedrockAuth(signature)"


def test_the_region_is_that_of_the_address_or_else_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get_region(URL) == "eu-west-1"
    assert get_region("https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com/x") == "us-gov-west-1"
    assert get_region("http://127.0.0.1:1") == "us-east-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-south-1")
    assert get_region("http://127.0.0.1:1") == "ap-south-1"
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert get_region() == "eu-north-1"


async def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("botocore.session", "botocore.eventstream"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"pip install 'perdure\[bedrock\]'"):
        await BedrockAuth().headers(URL, BODY)
    with pytest.raises(ConfigError, match=r"pip install 'perdure\[bedrock\]'"):
        EventStreamParser()


async def test_a_token_is_not_renewed_even_after_keys_were_used(monkeypatch: pytest.MonkeyPatch) -> None:
    keys(monkeypatch)
    auth = BedrockAuth()
    await auth.headers(URL, BODY)
    keys(monkeypatch, "AKIDANOTHER")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", " abc ")
    assert not await auth.renew()
    assert await auth.headers(URL, BODY) == {"authorization": "Bearer abc"}


async def test_a_new_session_token_alone_is_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    keys(monkeypatch, token="one")
    auth = BedrockAuth()
    await auth.headers(URL, BODY)
    keys(monkeypatch, token="two")
    assert await auth.renew()
    assert (await auth.headers(URL, BODY))["x-amz-security-token"] == "two"


def test_credentials_are_identified_by_a_part_of_a_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    def hashed(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    assert BedrockAuth(token="t").identity == hashed("t")
    assert BedrockAuth().identity == f"aws-{hashed('default')}"
    keys(monkeypatch)
    assert BedrockAuth().identity == f"aws-{hashed('AKIDEXAMPLE')}"
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert BedrockAuth().identity == f"aws-{hashed('work')}"
    assert BedrockAuth(profile_name="other").identity == f"aws-{hashed('other')}"


async def test_the_error_about_missing_credentials_names_all_that_would_do() -> None:
    with pytest.raises(AuthFailed) as caught:
        await BedrockAuth().headers(URL, BODY)
    assert str(caught.value) == (
        "there are no credentials for Amazon Bedrock: set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    )
