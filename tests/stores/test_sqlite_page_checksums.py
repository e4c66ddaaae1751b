"""The pages of an SQLite file have checksums: of a new one always, of an old one once it was backed up."""

import apsw
import pytest

from perdure import StoreError, user
from perdure._stores.sqlite.format import pages as page_checksums
from perdure._stores.sqlite.format.schema import FORMAT, UNCHECKED_FORMAT
from perdure._stores.sqlite.maintenance import restore, verify
from perdure.events import Entry, MessageAdded
from perdure.stores import SqliteStore
from tests.stores.material import another_connection, entries

PAGE = 4096


def bad_pages(path) -> list[int]:
    """The numbers of the pages whose checksum is wrong."""
    content = path.read_bytes()
    with another_connection(":memory:") as connection:
        check = "SELECT verify_checksum(?)"
        pages = range(0, len(content), PAGE)
        return [at // PAGE + 1 for at in pages if connection.execute(check, (content[at : at + PAGE],)).get != 1]


def format_of(path) -> int:
    return int.from_bytes(path.read_bytes()[60:64])


async def fill(store) -> None:
    lease = await store.acquire("s")
    await store.append(lease, entries(1, 2_000), sync=True)
    await store.append(lease, [Entry(2_001, 1.0, MessageAdded(user("long " * 9_000)), "long")], sync=True)
    await store.release(lease)


@pytest.fixture
def lacking(monkeypatch):
    """An apsw without the extension."""
    page_checksums.find_checksum_vfs()  # which is loaded once, whichever test is first
    monkeypatch.setattr(page_checksums, "_names", {None: None})


async def test_every_page_has_a_checksum(path, store, tmp_path):
    await fill(store)
    await store.delete("s")
    await fill(store)
    await store.aclose()
    assert (format_of(path), bad_pages(path)) == (FORMAT, [])
    await store.vacuum()
    await store.backup(tmp_path / "backup.db")
    await store.aclose()
    assert bad_pages(path) == bad_pages(tmp_path / "backup.db") == []
    restore(tmp_path / "backup.db", tmp_path / "restored.db")
    assert (format_of(tmp_path / "restored.db"), bad_pages(tmp_path / "restored.db")) == (FORMAT, [])


async def test_a_file_without_checksums_stays_as_it_is_and_gets_them_by_a_backup(path, tmp_path, monkeypatch, caplog):
    with monkeypatch.context() as old:
        old.setattr(page_checksums, "_names", {None: None})
        store = SqliteStore(path)
        await fill(store)
        await store.aclose()
    assert format_of(path) == UNCHECKED_FORMAT
    log = await store.read("s")
    assert len(log) == 2_001
    await store.backup(tmp_path / "backup.db")
    await store.vacuum()
    await store.aclose()
    assert format_of(path) == UNCHECKED_FORMAT
    verify(path)
    assert "that no byte of it has changed is not verified" in caplog.text
    assert (format_of(tmp_path / "backup.db"), bad_pages(tmp_path / "backup.db")) == (FORMAT, [])
    restored = SqliteStore(tmp_path / "backup.db")
    assert await restored.read("s") == log
    await restored.aclose()


async def test_a_file_with_checksums_is_refused_where_they_cannot_be_written(path, store, lacking, monkeypatch):
    monkeypatch.setitem(page_checksums._names, None, "cksmvfs")
    await fill(store)
    await store.aclose()
    monkeypatch.setitem(page_checksums._names, None, None)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="lacks the extension `cksumvfs`: install apsw from the package index"):
        await store.acquire("s")
    assert path.read_bytes() == before


@pytest.mark.parametrize("bit", range(8))
async def test_a_header_that_denies_the_checksums_is_not_believed(path, store, bit):
    await fill(store)
    await store.aclose()
    content = bytearray(path.read_bytes())
    content[20] ^= 1 << bit  # the bytes that are reserved on each page
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        await store.read("s")
    with pytest.raises(StoreError, match="damaged"):
        verify(path)


async def test_other_connections_of_the_process_keep_their_vfs(store):
    before = apsw.vfs_names()[0]
    await fill(store)
    assert apsw.vfs_names()[0] == before != "cksmvfs"


def test_an_extension_that_is_not_there_is_no_error(tmp_path):
    assert page_checksums._load_extension(str(tmp_path / "none")) is None


async def test_a_header_that_denies_the_checksums_of_a_file_is_damage(path, store):
    await fill(store)
    await store.aclose()
    content = bytearray(path.read_bytes())
    assert content[20] == page_checksums.RESERVED_BYTES
    content[20] = 0  # what the header says of the bytes reserved on each page
    path.write_bytes(content)
    with pytest.raises(StoreError) as refused:
        await SqliteStore(path).read("s")
    assert "its header says that its pages have no checksums" in str(refused.value)
