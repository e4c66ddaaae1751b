"""Remembered approvals that somebody has written into a store or a file of grants: none counts without the user's key.

The forger has all that the runtime has, but for the key: the store, its format, this library, and the approvals that
were stored before.
"""

import json
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import Agent, Grant, Permissions, tool
from perdure._core.permission.grants import list_sealed_fields, make_seal
from perdure._core.tools.binding import KEEPS_GRANTS_OF
from perdure._io.home import keys as grant_key
from perdure._io.home.keys import RuntimeKey
from perdure.events import Entry, GrantRevoked, PermissionDecided, SessionConfigured
from perdure.permissions import GrantFile, Verdict
from perdure.stores import namespaced, open_store
from perdure.testing import ScriptedModel, call

KEY = "a key of this test that is long enough"


@tool(permission=True, target="path")
async def remove(path: str) -> str:
    """Remove a file."""
    return f"{path} is gone"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """The folder with the key of the user."""
    folder = tmp_path / "home"
    monkeypatch.setenv("PERDURE_HOME", str(folder))
    monkeypatch.delenv("PERDURE_GRANT_KEY", raising=False)
    monkeypatch.setattr(grant_key, "_warned", set())
    return folder


@pytest.fixture
def place(tmp_path):
    """The name of a store."""
    return f"sqlite:{tmp_path}/sessions.db"


def build_agent(store, *replies, handler=None, **options: Any):
    permission = options.pop("permission", None) or Permissions(handler=handler)
    return Agent(ScriptedModel(*replies), tools=[remove], permission=permission, store=store, **options)


def answering(scope="session", *, allow=True, covers="target"):
    async def answer(requests):
        return [Verdict(allow=allow, scope=scope, covers=covers, by="the user at the terminal") for _ in requests]

    return answer


@asynccontextmanager
async def opened(store):
    """A store, closed at the end if it is given by its name: as one process after another opens it."""
    if not isinstance(store, str):
        yield store
        return
    found = open_store(store)
    try:
        yield found
    finally:
        if hasattr(found, "aclose"):
            await found.aclose()


async def approve(place, session="s", *, scope="session", path="a", covers="target"):
    """A person approves a call, for longer than once."""
    async with opened(place) as store:
        agent = build_agent(store, call("remove", path=path), "Done.", handler=answering(scope, covers=covers))
        outcome = await agent.session(session).run("Go.")
    assert outcome.new_messages[2].tool_results[0].status == "ok"


async def asks(place, session="s", path="a"):
    """Whether a process that knows nothing but the store asks about the call."""
    async with opened(place) as store:
        agent = build_agent(store, handler=answering(allow=False))
        return (await agent.session(session).explain("remove", {"path": path})).verdict != "allow"


async def read_decisions(place, session="s"):
    async with opened(place) as store:
        entries = await store.read(session)
    return [each.event for each in entries if isinstance(each.event, PermissionDecided)]


async def write(place, *events, session="s"):
    """Append events to a log, as any program can."""
    async with opened(place) as store:
        lease = await store.acquire(session)
        head = len(await store.read(session))
        entries = [Entry(head + at, 1.0, event, f"x{head}{at}") for at, event in enumerate(events, 1)]
        await store.append(lease, entries, sync=True)
        await store.release(lease)


async def test_an_approval_holds_in_a_later_process_and_its_key_is_private(place, home):
    await approve(place)
    assert not await asks(place)
    (decision,) = await read_decisions(place)
    assert decision.seal
    assert (home / "grant-key").stat().st_mode & 0o777 == 0o600
    assert [each.name for each in home.iterdir()] == ["grant-key"]


@pytest.mark.parametrize("store", ["memory:", "file:sessions", "sqlite:sessions.db"])
async def test_no_key_is_made_before_an_approval_is_to_be_remembered(store, home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = open_store(store)
    agent = build_agent(kept, call("remove", path="a"), "Done.", handler=answering("once"))
    await agent.session("s").run("Go.")
    refused = build_agent(kept, call("remove", path="b"), "Done.", handler=answering("session", allow=False))
    await refused.session("s").run("Go.")
    assert await asks(kept)
    assert not home.exists()


async def test_a_store_in_memory_needs_no_key_at_all(home):
    store = open_store("memory:")
    await approve(store)
    assert not await asks(store)
    assert not home.exists()


FORGERIES = {
    "without a seal": lambda real: replace(real, target="b", seal=""),
    "with the seal of another one": lambda real: replace(real, target="b"),
    "with a seal by another key": lambda real: replace(
        real, target="b", seal=make_seal(list_sealed_fields(replace(real, target="b")), RuntimeKey(b"0" * 64))
    ),
    "wider": lambda real: replace(real, covers="tool"),
    "for another tool": lambda real: replace(real, tool="remove", target="b", tool_identity="x"),
    "of another level": lambda real: replace(real, target="b", level=0),
    "with half a seal": lambda real: replace(real, target="b", seal=real.seal[:40]),
    "with an empty seal": lambda real: replace(real, target="b", seal="1.."),
    "with a strange seal": lambda real: replace(real, target="b", seal="1.\u00e9.\u00e9"),
}


@pytest.mark.parametrize("how", FORGERIES)
@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_a_forged_approval_does_not_count_and_a_warning_says_so(tmp_path, caplog, how, kind):
    place = f"{kind}:{tmp_path}/sessions"
    await approve(place)
    (real,) = await read_decisions(place)
    await write(place, FORGERIES[how](real))
    assert await asks(place, path="b")
    assert not await asks(place, path="a")
    assert any("does not count" in each.message for each in caplog.records)
    said = len(caplog.records)
    assert await asks(place, path="b")
    assert len(caplog.records) == said


@pytest.mark.parametrize("scope", ["session", "forever", "run"])
async def test_what_another_program_writes_is_asked_about_by_a_real_run(place, scope):
    await approve(place, scope="session")
    (real,) = await read_decisions(place)
    await write(place, replace(real, target="b", scope=scope, seal=""))
    asked: list[str] = []

    async def person(requests):
        asked.extend(each.target for each in requests)
        return [Verdict(allow=False)] * len(requests)

    agent = build_agent(place, call("remove", path="b"), "Done.", handler=person)
    outcome = await agent.session("s").run("Go on.")
    assert asked == ["b"]
    assert outcome.new_messages[2].tool_results[0].status == "denied"
    assert [each.target for each in await agent.session("s").grants()] == ["a"]


async def test_an_approval_that_is_copied_elsewhere_does_not_count_there(place, tmp_path):
    other = f"sqlite:{tmp_path}/other.db"
    await approve(place)
    (real,) = await read_decisions(place)
    for store, session in ((place, "t"), (other, "s"), (place, "acme/s")):
        await build_agent(store, "Hi.").session(session).run("Hi.")
        (first,) = {each.event.run_id for each in await open_store(store).read(session) if each.event.run_id}
        here = replace(
            real.binding, session=f"{session}@{first}", store=store if store == other else real.binding.store
        )
        await write(store, real, replace(real, binding=here), session=session)
        assert await asks(store, session)
    assert await asks(namespaced(open_store(place), "acme"), "s")


async def test_a_forged_fork_does_not_keep_the_approvals_of_another_session(place):
    await approve(place)
    session = build_agent(place, "Hi.").session("s")
    await session.fork("kept", keep_grants=True)
    await session.fork("plain")
    assert not await asks(place, "kept")
    assert await asks(place, "plain")
    kept = [each.event for each in await open_store(place).read("kept") if isinstance(each.event, SessionConfigured)]
    await write(place, *kept, session="plain")
    assert await asks(place, "plain")
    await write(place, SessionConfigured({KEEPS_GRANTS_OF: kept[0].changes[KEEPS_GRANTS_OF]}), session="plain")
    assert await asks(place, "plain")


async def test_a_revoked_approval_cannot_be_put_back(place, tmp_path):
    await approve(place)
    shutil.copy(tmp_path / "sessions.db", tmp_path / "before.db")
    (real,) = await read_decisions(place)
    store = open_store(place)
    session = build_agent(store).session("s")
    (grant,) = await session.grants()
    assert await session.revoke(grant.grant_id)
    await store.aclose()
    await write(place, real)
    assert await asks(place)
    for name in ("sessions.db", "sessions.db-wal", "sessions.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "before.db", tmp_path / "sessions.db")
    assert await asks(place)
    await approve(place)
    assert not await asks(place)


async def test_an_approval_that_was_given_anew_after_its_revocation_counts(place):
    await approve(place)
    session = build_agent(place).session("s")
    (grant,) = await session.grants()
    await session.revoke(grant.grant_id)
    assert await asks(place)
    await approve(place)
    assert not await asks(place)


async def test_a_revocation_that_is_written_twice_or_by_others_only_asks_again(place):
    await approve(place)
    (grant,) = await build_agent(place).session("s").grants()
    await write(place, GrantRevoked(grant.grant_id))
    assert await asks(place)


BROKEN = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "short": lambda path: path.write_bytes(b"x" * 31),
    "replaced": lambda path: path.write_bytes(b"y" * 64),
    "for others": lambda path: path.chmod(0o644),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link": lambda path: (path.rename(path.with_name("k")), path.symlink_to("k")),
}


@pytest.mark.parametrize("how", BROKEN)
async def test_without_the_key_nothing_crashes_and_the_person_is_asked(place, home, how, caplog):
    await approve(place)
    BROKEN[how](home / "grant-key")
    assert await asks(place)
    assert len([each for each in caplog.records if "count" in each.message]) >= 1
    said = len(caplog.records)
    assert await asks(place)
    assert len(caplog.records) == said
    await approve(place, "t")


async def test_a_home_that_cannot_be_written_keeps_the_approval_in_its_process(tmp_path, monkeypatch, place, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "file" / "home"))
    await approve(place)
    assert await asks(place)
    assert "this process alone" in caplog.text


async def test_machines_that_share_a_store_are_given_the_key(place, tmp_path, monkeypatch, home):
    monkeypatch.setenv("PERDURE_GRANT_KEY", KEY)
    await approve(place)
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "another"))
    assert not await asks(place)
    assert not home.exists()
    monkeypatch.setenv("PERDURE_GRANT_KEY", KEY + "x")
    assert await asks(place)
    monkeypatch.setenv("PERDURE_GRANT_KEY", "short")
    assert await asks(place)


def test_processes_that_start_together_make_one_key(home):
    line = "from perdure._io.home.keys import make_grant_key; print(make_grant_key().fingerprint)"
    started = [subprocess.Popen([sys.executable, "-c", line], stdout=subprocess.PIPE) for _ in range(6)]
    keys = {each.communicate(timeout=60)[0] for each in started}
    assert len(keys) == 1
    assert keys != {b""}
    assert [each.name for each in home.iterdir()] == ["grant-key"]


async def test_a_line_that_others_write_to_a_file_of_grants_does_not_count(tmp_path, place, caplog):
    path = tmp_path / "grants.jsonl"
    grants = GrantFile(path)
    agent = build_agent(
        place, call("remove", path="a"), "Done.", permission=Permissions(handler=answering("forever"), grants=grants)
    )
    await agent.session("s").run("Go.")
    (line,) = path.read_text().splitlines()
    kept = GrantFile(path)
    (grant,) = kept
    assert grant.target == "a"
    forged = [
        {**json.loads(line), "target": "b"},
        {"scope": "forever", "allow": True, "tool": "remove", "covers": "tool"},
    ]
    path.write_text("\n".join([line, *map(json.dumps, forged)]))
    path.chmod(0o600)
    assert [each.target for each in GrantFile(path)] == ["a"]
    assert "does not count" in caplog.text
    assert kept.revoke(grant.grant_id)
    path.write_text(line)
    assert list(GrantFile(path)) == []
    GrantFile(path).remember(grant)
    assert [each.target for each in GrantFile(path)] == ["a"]


async def test_a_program_may_write_its_own_grants_to_the_file(tmp_path):
    path = tmp_path / "grants.jsonl"
    GrantFile(path).remember(Grant("forever", allow=True, tool="remove", target="drafts/*"))
    assert [each.target for each in GrantFile(path)] == ["drafts/*"]
