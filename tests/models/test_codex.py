"""The endpoint of the Codex CLI: its login, kept fresh, and what is sent there."""

import asyncio
import base64
import gc
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure import AuthFailed, ConfigError, ModelError, ProviderDown, RateLimited, user
from perdure._models.wires.codex import (
    CLIENT_ID,
    LIFETIME_SECONDS,
    MIN_RENEWAL_INTERVAL_SECONDS,
    TOKEN_URL,
    WIRE,
    CodexAuth,
    CodexLogin,
    get_codex_profile,
    get_login_path,
    open_codex,
    read_login,
    write_login,
)
from perdure.events import TextDelta
from perdure.models import EncodingMemo, HttpModel, HttpTransport, Profile, Request
from perdure.testing import FakeClock
from tests.models.canned import CannedResponse, CannedTransport
from tests.wire.server import Playback, Received, Reply, json_reply, sse

NOW = 1_700_000_000.0
DAY = 24 * 3600.0
URL = "http://127.0.0.1/responses"
FRESH = json_reply({"id_token": "id-2", "access_token": "access-2", "refresh_token": "refresh-2"})


def token(**claims: Any) -> str:
    """A token like theirs, signed by nobody."""
    parts = [b"{}", json.dumps(claims).encode(), b"signature"]
    return ".".join([base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts])


def write(path: Path, access_token: str = "access-1", age: float = 0.0, **more: Any) -> Path:
    """A login, as the CLI writes it."""
    tokens = {"id_token": "id-1", "access_token": access_token, "refresh_token": "refresh-1", "account_id": "acct-1"}
    moment = datetime.fromtimestamp(NOW - age, UTC).isoformat().replace("+00:00", "Z")
    kept = {"OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": moment, "kept": {"by": "others"}, **more}
    path.write_text(json.dumps(kept))
    return path


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def login(tmp_path: Path) -> Path:
    return write(tmp_path / "auth.json")


@asynccontextmanager
async def renewing(path: Path, *replies: Reply) -> AsyncIterator[tuple[CodexAuth, Playback, FakeClock]]:
    """A login whose renewals are answered so."""
    clock, transport = FakeClock(NOW), HttpTransport()
    async with asyncio.timeout(30), Playback(replies) as server:
        yield (
            CodexAuth(transport, path=str(path), token_url=f"{server.base_url}/oauth/token", clock=clock),
            server,
            clock,
        )
        await transport.aclose()


# -- the file ----------------------------------------------------------------------------------------------------------


def test_the_login_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CODEX_HOME", "PERDURE_CODEX_AUTH"):
        monkeypatch.delenv(name, raising=False)
    assert get_login_path() == str(tmp_path / ".codex" / "auth.json")
    monkeypatch.setenv("CODEX_HOME", "/somewhere/codex")
    assert get_login_path() == "/somewhere/codex/auth.json"
    monkeypatch.setenv("PERDURE_CODEX_AUTH", "~/mine.json")
    assert get_login_path() == str(tmp_path / "mine.json")


def test_a_login_tells_its_account_and_its_end(tmp_path: Path) -> None:
    access = token(exp=NOW + 100, **{"https://api.openai.com/auth": {"chatgpt_account_id": "acct-9"}})
    path = tmp_path / "auth.json"
    path.write_text(json.dumps({"tokens": {"access_token": access}}))
    found = read_login(str(path))
    assert (found.account_id, found.expires_at, found.refreshed_at) == ("acct-9", NOW + 100, None)
    assert access not in repr(found)


@pytest.mark.parametrize(("left", "is_expired"), [(59.0, True), (60.0, True), (61.0, False), (None, False)])
def test_a_login_counts_as_expired_a_minute_before_its_end(left: float | None, is_expired: bool) -> None:
    login = CodexLogin(access_token="access-1", expires_at=None if left is None else NOW + left)
    assert (login.is_expired(NOW), login.is_stale(NOW)) == (is_expired, is_expired)


@pytest.mark.parametrize(("age", "is_stale"), [(LIFETIME_SECONDS - 1, False), (LIFETIME_SECONDS, True)])
def test_a_login_is_stale_once_it_has_reached_its_age(age: float, is_stale: bool) -> None:
    login = CodexLogin(access_token="access-1", refreshed_at=NOW - age)
    assert (login.is_expired(NOW), login.is_stale(NOW)) == (False, is_stale)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "run `codex login`"),
        ("{", "not a JSON object"),
        ("[]", "not a JSON object"),
        ('{"OPENAI_API_KEY": "sk-x", "tokens": null}', "no login with a ChatGPT subscription"),
        ('{"tokens": {"access_token": ""}}', "no login with a ChatGPT subscription"),
    ],
)
async def test_a_login_that_is_not_there_is_asked_for(tmp_path: Path, content: str | None, told: str) -> None:
    path = tmp_path / "auth.json"
    if content is not None:
        path.write_text(content)
    auth = CodexAuth(HttpTransport(), path=str(path))
    with pytest.raises(AuthFailed, match=told) as caught:
        await auth.headers(URL, b"")
    assert str(path) in str(caught.value)
    assert "sk-x" not in str(caught.value)
    with pytest.raises(ConfigError, match=told):
        auth.check()


def test_a_login_that_cannot_be_replaced_stays_as_it_was(login: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = login.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("perdure._models.wires.codex.os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_login(str(login), {"access_token": "access-2"}, NOW)
    assert login.read_bytes() == before
    assert files_in(login.parent) == ["auth.json"]


# -- headers -----------------------------------------------------------------------------------------------------------


async def test_headers_say_who_is_asking_and_whose_account_it_is(login: Path) -> None:
    async with renewing(login) as (auth, server, _):
        assert await auth.headers(URL, b"") == {
            "authorization": "Bearer access-1",
            "chatgpt-account-id": "acct-1",
            "originator": "perdure",
            "openai-beta": "responses=experimental",
        }
        assert server.received == []
        assert "access-1" not in repr(auth) + auth.identity


async def test_a_login_of_no_account_sends_none(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    path.write_text('{"tokens": {"access_token": "access-1"}}')
    async with renewing(path) as (auth, _, _clock):
        assert "chatgpt-account-id" not in await auth.headers(URL, b"")


async def test_a_login_that_the_cli_has_renewed_is_read_again(login: Path) -> None:
    async with renewing(login) as (auth, _, _clock):
        await auth.headers(URL, b"")
        write(login, "access-of-the-cli")
        assert (await auth.headers(URL, b""))["authorization"] == "Bearer access-of-the-cli"


# -- renewals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "age"), [(-1.0, 0.0), (30.0, 0.0), (DAY, LIFETIME_SECONDS)])
async def test_an_old_login_is_renewed_before_it_is_used(tmp_path: Path, left: float, age: float) -> None:
    path = write(tmp_path / "auth.json", token(exp=NOW + left), age)
    async with renewing(path, FRESH) as (auth, server, _):
        assert (await auth.headers(URL, b""))["authorization"] == "Bearer access-2"
        (asked,) = server.received
    assert asked.path == "/oauth/token"
    assert asked.json() == {"client_id": CLIENT_ID, "grant_type": "refresh_token", "refresh_token": "refresh-1"}


async def test_a_login_that_is_neither_old_nor_expired_is_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "auth.json", token(exp=NOW + DAY), 7 * DAY)
    async with renewing(path) as (auth, server, _):
        await auth.headers(URL, b"")
        assert server.received == []


async def test_a_renewed_login_is_written_for_its_owner_alone_and_keeps_what_else_is_there(tmp_path: Path) -> None:
    path = write(tmp_path / "auth.json", age=LIFETIME_SECONDS)
    path.chmod(0o644)
    async with renewing(path, FRESH) as (auth, _, _clock):
        await auth.headers(URL, b"")
    kept = json.loads(path.read_text())
    assert kept["tokens"] == {
        "id_token": "id-2",
        "access_token": "access-2",
        "refresh_token": "refresh-2",
        "account_id": "acct-1",
    }
    assert (kept["kept"], kept["OPENAI_API_KEY"]) == ({"by": "others"}, None)
    assert datetime.fromisoformat(kept["last_refresh"]).timestamp() == NOW
    assert path.stat().st_mode & 0o777 == 0o600
    assert files_in(tmp_path) == ["auth.json"]


async def test_a_login_behind_a_link_stays_behind_it(tmp_path: Path) -> None:
    place = write(tmp_path / "real.json", age=LIFETIME_SECONDS)
    link = tmp_path / "auth.json"
    link.symlink_to(place)
    async with renewing(link, FRESH) as (auth, _, _clock):
        await auth.headers(URL, b"")
    assert link.is_symlink()
    assert "access-2" in place.read_text()


async def test_a_refused_token_is_renewed_once_for_all_who_were_refused(login: Path) -> None:
    async with renewing(login, FRESH) as (auth, server, clock):
        await auth.headers(URL, b"")
        assert await asyncio.gather(*[auth.renew() for _ in range(5)]) == [True] * 5
        assert (await auth.headers(URL, b""))["authorization"] == "Bearer access-2"
        assert await auth.renew()  # somebody who was refused with the old token, and is late
        assert len(server.received) == 1
        await clock.advance(MIN_RENEWAL_INTERVAL_SECONDS)
        with pytest.raises(ModelError):
            await auth.renew()
        assert len(server.received) == 2


async def test_a_token_that_has_been_replaced_meanwhile_needs_no_renewal(login: Path) -> None:
    async with renewing(login) as (auth, server, _):
        await auth.headers(URL, b"")
        write(login, "access-of-the-cli")
        assert await auth.renew()
        assert server.received == []


async def test_before_any_token_was_sent_none_was_refused(login: Path) -> None:
    async with renewing(login) as (auth, server, _):
        assert await auth.renew()
        assert server.received == []


async def test_a_renewal_goes_on_when_whoever_asked_for_it_is_cancelled(tmp_path: Path) -> None:
    path = write(tmp_path / "auth.json", age=LIFETIME_SECONDS)
    arrived, go = asyncio.Event(), asyncio.Event()

    async def slowly(_: Received) -> Reply:
        arrived.set()
        await go.wait()
        return FRESH

    transport = HttpTransport()
    async with asyncio.timeout(30), Playback(slowly) as server:
        auth = CodexAuth(transport, path=str(path), token_url=server.base_url, clock=FakeClock(NOW))
        asking = asyncio.create_task(auth.headers(URL, b""))
        await arrived.wait()
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        go.set()
        assert (await auth.headers(URL, b""))["authorization"] == "Bearer access-2"
        assert len(server.received) == 1
        await transport.aclose()


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_a_login_that_cannot_be_renewed_any_more_is_asked_for_again(tmp_path: Path, status: int) -> None:
    path = write(tmp_path / "auth.json", token(exp=NOW))
    refusal = json_reply({"error": {"code": "refresh_token_reused", "message": "refresh-1 was used"}}, status)
    async with renewing(path, refusal) as (auth, _, _clock):
        with pytest.raises(AuthFailed, match=r"\(refresh_token_reused\): run `codex login`") as caught:
            await auth.headers(URL, b"")
    assert "refresh-1" not in str(caught.value)


async def test_a_refusal_without_a_reason_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "auth.json", token(exp=NOW))
    async with renewing(path, Reply(b"<html>", 401)) as (auth, _, _clock):
        with pytest.raises(AuthFailed, match="no reason was given"):
            await auth.headers(URL, b"")


@pytest.mark.parametrize("code", ["the token refresh-1", "x" * 64, ""], ids=["a sentence", "too long", "empty"])
async def test_a_reason_that_might_hold_the_token_is_not_repeated(tmp_path: Path, code: str) -> None:
    path = write(tmp_path / "auth.json", token(exp=NOW))
    async with renewing(path, json_reply({"error": code}, 401)) as (auth, _, _clock):
        with pytest.raises(AuthFailed, match=r"\(no reason was given\): run `codex login`"):
            await auth.headers(URL, b"")


async def test_the_longest_reason_that_is_a_word_is_repeated(tmp_path: Path) -> None:
    path = write(tmp_path / "auth.json", token(exp=NOW))
    async with renewing(path, json_reply({"error": "x" * 63}, 401)) as (auth, _, _clock):
        with pytest.raises(AuthFailed, match=rf"\({'x' * 63}\)"):
            await auth.headers(URL, b"")


async def test_a_login_without_the_means_to_renew_it_is_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    path.write_text(json.dumps({"tokens": {"access_token": token(exp=NOW)}}))
    async with renewing(path) as (auth, _, _clock):
        with pytest.raises(AuthFailed, match="cannot be renewed"):
            await auth.headers(URL, b"")


async def test_a_login_that_the_cli_renews_at_the_same_time_is_used(tmp_path: Path) -> None:
    path = write(tmp_path / "auth.json", token(exp=NOW))

    def spent(_: Received) -> Reply:
        write(path, "access-of-the-cli")
        return json_reply({"error": {"code": "refresh_token_reused"}}, 401)

    transport = HttpTransport()
    async with asyncio.timeout(30), Playback(spent) as server:
        auth = CodexAuth(transport, path=str(path), token_url=server.base_url, clock=FakeClock(NOW))
        assert (await auth.headers(URL, b""))["authorization"] == "Bearer access-of-the-cli"
        await transport.aclose()


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(b"oops", 503), ProviderDown),
        (Reply(b"slow down", 429), RateLimited),
        (Reply(headless=True, end="close"), ProviderDown),
        (json_reply({"id_token": "only"}), ProviderDown),
        (Reply(b"no json"), ProviderDown),
    ],
)
async def test_a_renewal_that_may_succeed_later_is_no_end_of_the_login(
    tmp_path: Path, reply: Reply, error: type[ModelError]
) -> None:
    path = write(tmp_path / "auth.json", token(exp=NOW))
    before = path.read_bytes()
    async with renewing(path, reply, reply) as (auth, _, _clock):
        with pytest.raises(error):
            await auth.headers(URL, b"")
    assert path.read_bytes() == before


async def test_a_login_that_is_old_but_not_expired_serves_while_no_other_can_be_had(tmp_path: Path) -> None:
    access = token(exp=NOW + DAY)
    path = write(tmp_path / "auth.json", access, LIFETIME_SECONDS)
    async with renewing(path, Reply(b"oops", 503)) as (auth, _, _clock):
        assert (await auth.headers(URL, b""))["authorization"] == f"Bearer {access}"


async def test_a_renewed_login_that_cannot_be_written_serves_this_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "auth.json", token(exp=NOW))

    def vanishing(_: Received) -> Reply:
        path.unlink()
        return FRESH

    transport = HttpTransport()
    async with asyncio.timeout(30), Playback(vanishing) as server:
        auth = CodexAuth(transport, path=str(path), token_url=server.base_url, clock=FakeClock(NOW))
        with caplog.at_level(logging.WARNING, "perdure.models"):
            assert (await auth.headers(URL, b""))["authorization"] == "Bearer access-2"
        assert (await auth.headers(URL, b""))["chatgpt-account-id"] == "acct-1"
        await transport.aclose()
    assert "cannot be written" in caplog.text
    assert not any(secret in caplog.text for secret in ("access-2", "refresh-1", "refresh-2"))


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_request_is_of_the_form_that_the_endpoint_demands() -> None:
    profile = Profile(provider="codex", model="gpt-9")
    sending = WIRE.encode(Request(messages=[user("hi")], session_id="s-1"), profile, EncodingMemo())
    sent = json.loads(sending.body)
    assert (sent["store"], sent["stream"], bool(sent["instructions"])) == (False, True, True)
    assert sent["prompt_cache_key"] == "s-1"
    assert sending.path == "/responses"
    assert sending.headers == {"accept": "text/event-stream", "session_id": "s-1"}
    assert WIRE.lint(sent, profile) == []
    assert "session_id" not in WIRE.encode(Request(messages=[user("hi")]), profile, EncodingMemo()).headers


async def test_a_model_of_the_subscription_answers_and_renews_its_login_when_it_is_refused(login: Path) -> None:
    said = {"type": "response.output_text.delta", "output_index": 0, "delta": "hello"}
    ending = {"type": "response.completed", "response": {"status": "completed", "output": []}}
    refusal = json_reply({"detail": "Could not parse your authentication token. Please try signing in again."}, 401)

    def answer(received: Received) -> Reply:
        if received.path == "/oauth/token":
            return FRESH
        return Reply(sse(said, ending)) if received.headers["authorization"] == "Bearer access-2" else refusal

    transport = HttpTransport()
    async with asyncio.timeout(30), Playback(answer) as server:
        auth = CodexAuth(transport, path=str(login), token_url=f"{server.base_url}/oauth/token", clock=FakeClock(NOW))
        model = HttpModel(WIRE, get_codex_profile("gpt-9"), base_url=server.base_url, auth=auth, transport=transport)
        events = [event async for event in model.stream(Request(messages=[user("hi")], session_id="s-1"))]
        assert events[0] == TextDelta("hello")
        assert [each.path for each in server.received] == ["/responses", "/oauth/token", "/responses"]
        assert server.received[-1].headers["session_id"] == "s-1"
        assert server.received[-1].headers["chatgpt-account-id"] == "acct-1"
        await transport.aclose()


def test_a_model_is_opened_with_the_login_that_there_is(
    login: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PERDURE_CODEX_AUTH", str(login))
    assert open_codex("gpt-9").info.name == "gpt-9"
    assert open_codex().info.provider == "codex"
    monkeypatch.setenv("PERDURE_CODEX_AUTH", str(tmp_path / "nowhere.json"))
    with pytest.raises(ConfigError, match="run `codex login`"):
        open_codex("gpt-9")


def test_a_model_of_the_subscription_is_described_in_full() -> None:
    described = Profile(
        provider="codex",
        model="gpt-9",
        context_tokens=400_000,
        strict_tools=True,
        schema="openai_strict",
        documents=True,
        dialect="codex",
    )
    assert get_codex_profile("gpt-9") == described


async def test_a_model_renews_its_login_by_the_transport_that_all_share(
    login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = CannedTransport(CannedResponse(b"{}", status=401), CannedResponse(b"{}", status=403))
    monkeypatch.setattr("perdure._io.http.pooled.get_shared_transport", lambda: shared)
    monkeypatch.setenv("PERDURE_CODEX_AUTH", str(login))
    write(login, token(exp=1))
    with pytest.raises(AuthFailed):
        await anext(aiter(open_codex("gpt-9").stream(Request(messages=[user("hi")]))))
    assert {url for url, _, _ in shared.posted} == {TOKEN_URL}


async def test_a_renewal_that_fails_when_nobody_waits_any_more_is_not_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "auth.json", token(exp=NOW))
    arrived, go = asyncio.Event(), asyncio.Event()

    class Refusing(CannedTransport):
        @asynccontextmanager
        async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AsyncIterator[CannedResponse]:
            arrived.set()
            await go.wait()
            async with super().post(url, headers, body) as answer:
                yield answer

    async def ask_and_leave() -> None:
        auth = CodexAuth(Refusing(CannedResponse(b"{}", status=401)), path=str(path), clock=FakeClock(NOW))
        asking = asyncio.create_task(auth.headers(URL, b""))
        await arrived.wait()
        asking.cancel()
        await asyncio.wait([asking])
        (renewal,) = [each for each in asyncio.all_tasks() if each.get_name() == "renewal of the Codex login"]
        go.set()
        await asyncio.wait([renewal])

    async with asyncio.timeout(30):
        await ask_and_leave()
    gc.collect()
    assert caplog.text == ""
