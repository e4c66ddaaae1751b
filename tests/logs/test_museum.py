"""Old logs open in every later version. Each folder here holds the sessions that one release has left behind.

`record.py` has made them, with the code of that release. They are never changed: a log that does not open any more is a
bug of the version that does not open it. What it makes of today's code has to open as well.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import apsw
import msgspec
import pytest

from perdure import Agent, ConfigError, Message, StoreError
from perdure._core.log.repair import INTERRUPTED_CALL_TEXT, NOT_STARTED_CALL_TEXT
from perdure._stores.file.layout import encode_line
from perdure._stores.sqlite.format.pages import find_checksum_vfs
from perdure._stores.sqlite.format.rows import PackedRowMetadata, build_row_without_long_texts
from perdure.engines import fold_entries
from perdure.events import EVENTS, Entry, Unknown
from perdure.stores import EntryTooNew, FileStore, MemoryStore, Post, SqliteStore, Store, decode_entry, encode_entry
from perdure.testing import ScriptedModel
from tests.architecture.source import ROOT
from tests.logs.record import CUT_OFF, EVERY_KIND, FUTURE, SESSIONS, TALK, depth, lower
from tests.transcript import assert_valid

TODAY = "today"
RELEASES = sorted(folder.name for folder in Path(__file__).parent.iterdir() if folder.name[0].isdecimal())
FORMS = ("jsonl", "sqlite", "file")
MOST_BYTES = 80_000

TRANSCRIPTS = {
    TALK: [
        "user: Where may we anchor?",
        "assistant: depth, lower",
        "tool: the bay: 12 fathoms; denied by the rule deny('lower')",
        "assistant: The bay is 12 fathoms deep. é \U0001f6a2",
    ],
    CUT_OFF: ["user: Anchor here."],
    EVERY_KIND: ["user: x"],
}
"""What the sessions of every release amount to."""

REPAIRED = {
    TALK: TRANSCRIPTS[TALK],
    CUT_OFF: [
        *TRANSCRIPTS[CUT_OFF],
        "assistant: Aye. depth, lower",
        f"tool: {INTERRUPTED_CALL_TEXT}; {NOT_STARTED_CALL_TEXT}",
    ],
    EVERY_KIND: TRANSCRIPTS[EVERY_KIND],
}
"""And once somebody goes on with them."""


class Hall:
    """The logs of one release, in copies that may be written to."""

    def __init__(self, logs: Path, folder: Path) -> None:
        self.folder = folder / logs.name
        shutil.copytree(logs, self.folder)
        self._open: list[Store] = []

    def lines(self, session_id: str) -> list[bytes]:
        return (self.folder / f"{session_id}.jsonl").read_bytes().splitlines()

    def entries(self, session_id: str) -> list[Entry]:
        return [decode_entry(line) for line in self.lines(session_id)]

    async def store(self, form: str) -> Store:
        if form == "jsonl":
            self._open.append(await self._in_memory())
        elif form == "sqlite":
            self._open.append(SqliteStore(self.folder / "sessions.db"))
        else:
            self._open.append(FileStore(self.folder / "sessions"))
        return self._open[-1]

    async def _in_memory(self) -> Store:
        store = MemoryStore()
        for name in SESSIONS:
            lease = await store.acquire(name)
            await store.append(lease, self.entries(name), sync=True)
            await store.release(lease)
        return store

    async def close(self) -> None:
        for store in self._open:
            await store.aclose()

    # -- what a newer version would have written -----------------------------------------------------------------------

    def add(self, form: str, seq: int, kind: str, *, critical: bool) -> None:
        """Another entry in `talk`."""
        body = msgspec.json.encode({"kind": kind, "run_id": "r", "more": [1, None]})
        entry = {"seq": seq, "at": 1.0, "event": msgspec.Raw(body), "id": "added", "critical": critical}
        if form == "sqlite":
            heads = PackedRowMetadata([1.0], ["added"], [kind] if critical else [])
            row, _ = build_row_without_long_texts(seq, 1, heads, b"[%b]" % body)
            self._change("UPDATE session SET head = head + 1 WHERE id = 'talk'")
            add = "INSERT INTO pack(session, first, last, version, heads, body, holes) SELECT key, ?, ?, ?, ?, ?, ?"
            self._change(f"{add} FROM session WHERE id = 'talk'", row)
        elif form == "file":
            line = encode_line(msgspec.json.encode(entry), crc32(TALK.encode()))
            with (self.folder / "sessions" / "talk.session").open("ab") as file:
                file.write(line)
        else:
            with (self.folder / "talk.jsonl").open("ab") as file:
                file.write(msgspec.json.encode(entry) + b"\n")

    def renew(self, form: str) -> None:
        """Say that it is of a format which nobody knows yet."""
        if form == "sqlite":
            self._change("PRAGMA user_version = 999")
        elif form == "file":
            path = self.folder / "sessions" / "talk.session"
            first, _, rest = path.read_bytes().partition(b"\n")
            header = msgspec.json.decode(first[first.index(b"{") :])
            path.write_bytes(encode_line(msgspec.json.encode({**header, "format": 999}), 0) + rest)
        else:
            path = self.folder / "talk.jsonl"
            path.write_bytes(b"".join(line.removesuffix(b"}") + b',"v":999}\n' for line in self.lines(TALK)))

    def _change(self, statement: str, values: tuple[object, ...] = ()) -> None:
        connection = apsw.Connection(str(self.folder / "sessions.db"), vfs=find_checksum_vfs())
        connection.execute(statement, values)
        connection.close()


def told(messages) -> list[str]:
    """A transcript, a line for each message."""
    return [f"{message.role}: {_words(message)}" for message in messages]


def _words(message: Message) -> str:
    if message.role == "tool":
        return "; ".join(result.text for result in message.tool_results)
    names = ", ".join(sorted(call.name for call in message.tool_calls))
    return " ".join(word for word in (message.text, names) if word)


@pytest.fixture(scope="module")
def logs_of_today(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("logs") / TODAY
    subprocess.run([sys.executable, "-m", "tests.logs.record", folder], cwd=ROOT, check=True)
    return folder


@pytest.fixture(params=[*RELEASES, TODAY])
async def hall(request, tmp_path):
    is_today = request.param == TODAY
    logs = request.getfixturevalue("logs_of_today") if is_today else Path(__file__).parent / request.param
    hall = Hall(logs, tmp_path)
    yield hall
    await hall.close()


form = pytest.mark.parametrize("form", FORMS)
session = pytest.mark.parametrize("session_id", SESSIONS)


@form
@session
async def test_an_old_session_reads_as_it_was_written(hall, form, session_id):
    store = await hall.store(form)
    written = hall.entries(session_id)
    assert await store.read(session_id) == written
    assert await store.read(session_id, after=3) == written[3:]
    info = await store.info(session_id)
    assert (info.entries, info.updated_at, info.parent) == (len(written), written[-1].at, "")
    assert sorted(info.session_id for info in await store.list()) == sorted(SESSIONS)


@form
@session
async def test_an_old_session_amounts_to_what_it_always_did(hall, form, session_id):
    state = fold_entries(await (await hall.store(form)).read(session_id))
    assert told(state.messages) == TRANSCRIPTS[session_id]
    assert_valid(state.messages)


@form
@session
async def test_an_old_session_goes_on(hall, form, session_id):
    store = await hall.store(form)
    before = await store.read(session_id)
    model = ScriptedModel("Aye, aye.")
    agent = Agent(model, tools=[depth, lower], store=store)
    outcome = await agent.session(session_id).run("Carry on.")
    assert outcome.unwrap().text == "Aye, aye."
    after = await store.read(session_id)
    assert after[: len(before)] == before
    assert [entry.seq for entry in after] == list(range(1, len(after) + 1))
    messages = fold_entries(after).messages
    assert told(messages) == [*REPAIRED[session_id], "user: Carry on.", "assistant: Aye, aye."]
    assert_valid(messages)


@form
async def test_a_run_that_was_cut_off_long_ago_can_be_resumed(hall, form):
    store = await hall.store(form)
    agent = Agent(ScriptedModel("Nobody knows whether it is down."), name="mate", tools=[depth, lower], store=store)
    outcome = await agent.session(CUT_OFF).resume()
    assert outcome.unwrap().text == "Nobody knows whether it is down."
    (settled,) = [message for message in fold_entries(await store.read(CUT_OFF)).messages if message.role == "tool"]
    assert [str(result.status) for result in settled.tool_results] == ["unknown", "ok"]


@form
async def test_old_sessions_can_all_that_new_ones_can(hall, form):
    store = await hall.store(form)
    entries = await store.read(TALK)
    await store.fork(TALK, "fork", at=3)
    assert await store.read("fork") == entries[:3]
    assert await store.post(TALK, Post("p", "steer", "Look out!"))
    assert not await store.post(TALK, Post(entries[0].id, "steer"))
    assert await store.posts(TALK) == [Post("p", "steer", "Look out!")]
    lease = await store.acquire(TALK)
    redacted = Entry(2, entries[1].at, Unknown("gone", {"kind": "gone"}), entries[1].id)
    await store.redact(lease, redacted)
    assert await store.read("fork") == [entries[0], redacted, entries[2]]
    await store.release(lease)
    await store.delete(TALK)
    assert await store.read(TALK) == []
    assert await store.read("fork") == [entries[0], redacted, entries[2]]


@form
async def test_what_no_version_knows_yet_is_kept_as_it_came(hall, form):
    hall.add(form, len(hall.lines(TALK)) + 1, "from_afar", critical=False)
    store = await hall.store(form)
    future = [entry.event for entry in await store.read(EVERY_KIND) if isinstance(entry.event, Unknown)]
    assert future == [Unknown("from_the_future", FUTURE, run_id="run-f")]
    last = (await store.read(TALK))[-1]
    assert last.event == Unknown("from_afar", {"kind": "from_afar", "run_id": "r", "more": [1, None]}, run_id="r")
    assert decode_entry(encode_entry(last)) == last


@form
async def test_what_must_be_understood_and_is_not_is_refused(hall, form):
    hall.add(form, len(hall.lines(TALK)) + 1, "from_afar", critical=True)
    with pytest.raises(EntryTooNew, match="kind 'from_afar', which this version does not know: upgrade perdure"):
        await (await hall.store(form)).read(TALK)


@form
async def test_a_newer_format_is_refused_and_left_as_it_is(hall, form):
    hall.renew(form)
    files = {path: path.read_bytes() for path in hall.folder.rglob("*") if path.is_file()}
    with pytest.raises((StoreError, ConfigError), match=r"upgrade"):
        await (await hall.store(form)).read(TALK)
    await hall.close()
    assert {path: path.read_bytes() for path in files} == files


def test_no_kind_of_event_is_ever_forgotten(hall):
    kinds = [msgspec.json.decode(line)["event"]["kind"] for line in hall.lines(EVERY_KIND)]
    assert len(kinds) > 20
    assert set(kinds) - set(EVENTS) == {"from_the_future"}
    assert [EVENTS.get(kind, Unknown) for kind in kinds] == [type(entry.event) for entry in hall.entries(EVERY_KIND)]


def test_the_museum_is_small(hall):
    assert max(path.stat().st_size for path in hall.folder.rglob("*") if path.is_file()) < MOST_BYTES
