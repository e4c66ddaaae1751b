"""The project was called Windlass once. What was written then opens, and goes on; what is new has the new name."""

import re
import shutil
from pathlib import Path

import pytest

from perdure import Agent
from perdure.core.event import Entry, MessageAdded, ValueKept
from perdure.core.fold import fold_entries
from perdure.core.message import user
from perdure.core.store import Post
from perdure.runtime.background_agent_task import BackgroundAgentTask, list_background_jobs
from perdure.session_transfer import export_session, import_session
from perdure.stores.file.line_format import encode_line
from perdure.stores.file.store import FileStore
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite.maintenance import restore, verify
from perdure.stores.sqlite.search_index import measure_search_index
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing import ScriptedModel
from tests.stores.material import another_connection, entries

OLD_FOLDER = Path(__file__).parent / "0.1.0" / "sessions"
OLD_MARK, NEW_MARK = b'{"windlass":"session",', b'{"perdure":"session",'
OLD_ID, NEW_ID = 0x574E444C, 0x50524455
OLD_SEARCH_ID, NEW_SEARCH_ID = 0x574E4453, 0x50524453


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(OLD_FOLDER, tmp_path / "sessions")
    return tmp_path / "sessions"


@pytest.fixture
async def files(folder):
    store = FileStore(folder)
    yield store
    await store.aclose()


def first_line(path: Path) -> bytes:
    return path.read_bytes().partition(b"\n")[0]


# -- files -------------------------------------------------------------------------------------------------------------


async def test_an_old_file_is_appended_to_and_keeps_its_first_line(folder, files):
    path = folder / "talk.session"
    header, before = first_line(path), await files.read("talk")
    assert OLD_MARK in header
    outcome = await Agent(ScriptedModel("Aye."), store=files).session("talk").run("Carry on.")
    assert outcome.unwrap().text == "Aye."
    assert (await files.read("talk"))[: len(before)] == before
    assert first_line(path) == header


async def test_a_fork_of_an_old_file_has_the_new_name(folder, files):
    before = await files.read("talk")
    await files.fork("talk", "fork", at=3)
    assert NEW_MARK in first_line(folder / "fork.session")
    await files.delete("talk")
    assert await files.read("fork") == before[:3]


async def test_an_old_file_is_redacted(folder, files):
    before = await files.read("talk")
    lease = await files.acquire("talk")
    clean = Entry(2, before[1].at, MessageAdded(user("clean")), before[1].id)
    await files.redact(lease, clean)
    await files.release(lease)
    assert await files.read("talk") == [before[0], clean, *before[2:]]
    assert b"Where may we anchor?" not in (folder / "talk.session").read_bytes()


async def test_an_old_file_is_exported_and_imported(files):
    document = await export_session(files, "talk")
    assert document["format"] == "perdure-session"
    store = MemoryStore()
    await import_session(store, {**document, "format": "windlass-session"}, session_id="copy", trusted=True)
    assert (await store.read("copy"))[:-1] == await files.read("talk")


async def test_an_old_file_is_repaired_measured_cleaned_and_backed_up(folder, files, tmp_path):
    path = folder / "talk.session"
    before = await files.read("talk")
    own = path.stat().st_size - len(first_line(path)) - 1
    assert (await files.size()).sessions["talk"] == own
    with path.open("ab") as file:
        file.write(b"scribble")
    await files.release(await files.acquire("talk"))
    assert await files.read("talk") == before
    await files.vacuum()
    await files.backup(str(tmp_path / "backup"))
    copy = FileStore(tmp_path / "backup")
    assert await copy.read("talk") == before
    assert len(await copy.list()) == 3
    await copy.aclose()


async def test_an_old_mailbox_is_read(folder, files):
    await files.post("talk", Post("p", "steer", "Look out!"))
    path = folder / "talk.posts"
    header, _, rest = path.read_bytes().partition(b"\n")
    assert NEW_MARK in header
    body = header[header.index(b"{") :].replace(NEW_MARK, OLD_MARK)
    path.write_bytes(encode_line(body, 0) + rest)
    assert await files.post("talk", Post("q", "steer", "Too late!"))
    assert [post.id for post in await files.posts("talk")] == ["p", "q"]


@pytest.mark.parametrize("mark", [OLD_MARK, NEW_MARK])
async def test_a_file_that_ends_within_its_first_line_is_ours(files, folder, mark):
    line = re.sub(rb"{.*?,", mark, first_line(OLD_FOLDER / "talk.session"), count=1)
    (folder / "new.session").write_bytes(line[: 12 + len(mark) // 2])
    lease = await files.acquire("new")
    await files.append(lease, entries(1), sync=True)
    assert await files.read("new") == entries(1)


# -- SQLite ------------------------------------------------------------------------------------------------------------


async def test_an_old_database_opens_and_can_be_backed_up_and_restored(tmp_path):
    path = tmp_path / "sessions.db"
    store = SqliteStore(path)
    lease = await store.acquire("s")
    await store.append(lease, [Entry(1, 1.0, MessageAdded(user("a lantern")), "e-1")], sync=True)
    assert [hit.seq for hit in await store.search("lantern")] == [1]
    await store.release(lease)
    await store.aclose()
    index = path.with_name("sessions.db-search")
    for file, new, old in ((path, NEW_ID, OLD_ID), (index, NEW_SEARCH_ID, OLD_SEARCH_ID)):
        with another_connection(file) as connection:
            assert connection.pragma("application_id") == new
            connection.execute(f"PRAGMA application_id = {old}")
    made = index.stat().st_ino

    store = SqliteStore(path)
    lease = await store.acquire("s")
    assert lease.fence == 2
    await store.append(lease, [Entry(2, 1.0, MessageAdded(user("a kestrel")), "e-2")], sync=True)
    assert [hit.seq for hit in await store.search("lantern")] == [1]
    assert [hit.seq for hit in await store.search("kestrel")] == [2]
    assert (index.stat().st_ino, measure_search_index(str(path)) > 0) == (made, True)  # it was not made anew
    await store.vacuum()
    await store.backup(str(tmp_path / "backup.db"))
    log = await store.read("s")
    await store.release(lease)
    await store.aclose()
    verify(path)
    restore(tmp_path / "backup.db", tmp_path / "restored.db")
    restored = SqliteStore(tmp_path / "restored.db")
    assert await restored.read("s") == log
    await restored.aclose()


async def test_a_database_of_the_first_format_gets_the_new_mark(tmp_path):
    path = tmp_path / "sessions.db"
    shutil.copy(OLD_FOLDER.parent / "sessions.db", path)
    with another_connection(path) as connection:
        assert connection.pragma("application_id") == OLD_ID
    store = SqliteStore(path)
    assert len(await store.list()) == 3
    await store.aclose()
    with another_connection(path) as connection:
        assert connection.pragma("application_id") == NEW_ID


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["perdure:agent:", "windlass:agent:", "agent:"])
def test_a_task_in_the_background_is_found_under_each_name(prefix):
    job = BackgroundAgentTask("scout-1", "scout", "Look.", "s/scout-1", "i", "c")
    value = {name: getattr(job, name) for name in job.__struct_fields__}
    state = fold_entries([Entry(1, 1.0, ValueKept(f"{prefix}scout-1", value), "e-1")])
    assert list_background_jobs(state, MemoryStore()) == [job]
