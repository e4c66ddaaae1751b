"""Files that are taken away: their bytes are gone too, and whoever is reading them is not misled."""

import os
import shutil

import pytest

from perdure import StoreError, user
from perdure._stores.file import catalogue as file_catalogue
from perdure._stores.file import catalogue as file_summary
from perdure._stores.file import scan as file_look
from perdure._stores.file import scan as file_survey
from perdure._stores.file.disk import (
    DOOMED_SUFFIX,
    erase_file,
    erase_replaced_file,
    erase_stale_temporary_files,
)
from perdure.events import Custom, Entry, MessageAdded
from perdure.stores import Conflict, Fenced, Lease, Post
from tests.stores.material import entries

SECRET = "kestrel-7741"


def secret(seq: int) -> Entry:
    return Entry(seq, 1.0, MessageAdded(user(f"it is {SECRET}")), f"e-{seq}")


def clean(seq: int) -> Entry:
    return Entry(seq, 1.0, Custom("clean"), f"e-{seq}")


def holding(folder) -> list[str]:
    """The files that hold the secret."""
    return [path.name for path in folder.iterdir() if SECRET.encode() in path.read_bytes()]


@pytest.fixture
def watched(tmp_path):
    """Gives a file a second name, so that what becomes of its bytes can be seen."""

    def watch(path):
        link = tmp_path / f"watched-{path.name}"
        link.hardlink_to(path)
        return link

    return watch


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_discarded_file_is_overwritten_first(tmp_path, watched):
    path = tmp_path / "file"
    path.write_bytes(b"secret" * 300_000)
    link = watched(path)
    erase_file(str(path))
    assert not path.exists()
    assert link.read_bytes() == bytes(1_800_000)
    erase_file(str(path))
    assert [left.name for left in tmp_path.iterdir()] == [link.name]


def test_a_link_is_discarded_and_not_what_it_leads_to(tmp_path):
    (tmp_path / "target").write_bytes(b"not ours")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    erase_file(str(tmp_path / "link"))
    assert [(left.name, left.read_bytes()) for left in tmp_path.iterdir()] == [("target", b"not ours")]


def test_a_file_is_erased_when_another_one_has_its_place_and_only_then(tmp_path, watched):
    path, new = tmp_path / "file", tmp_path / "new"
    path.write_bytes(b"old")
    new.write_bytes(b"new")
    link = watched(path)
    with pytest.raises(ZeroDivisionError), erase_replaced_file(str(path)):
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    with erase_replaced_file(str(path)):
        new.replace(path)
    assert (path.read_bytes(), link.read_bytes()) == (b"new", bytes(3))
    assert sorted(left.name for left in tmp_path.iterdir()) == ["file", link.name]


def test_a_file_is_erased_also_where_there_are_no_second_names(tmp_path, watched, monkeypatch):
    path, new = tmp_path / "file", tmp_path / "new"
    path.write_bytes(b"old")
    new.write_bytes(b"new")
    link = watched(path)

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    with erase_replaced_file(str(path)):
        new.replace(path)
    assert link.read_bytes() == bytes(3)


def test_a_second_name_that_was_left_costs_the_file_nothing(tmp_path, watched):
    path = tmp_path / "s.session"
    path.write_bytes(b"in use")
    second, gone = tmp_path / f"s.session.00{DOOMED_SUFFIX}", tmp_path / f"s.session.01{DOOMED_SUFFIX}"
    second.hardlink_to(path)
    gone.write_bytes(b"replaced")
    link = watched(gone)
    erase_stale_temporary_files(str(path))
    assert path.read_bytes() == b"in use"
    assert link.read_bytes() == bytes(8)
    assert not second.exists()
    assert not gone.exists()


# -- redaction ---------------------------------------------------------------------------------------------------------


async def test_a_redacted_entry_leaves_no_byte(folder, files, watched):
    lease = await files.acquire("s")
    await files.append(lease, [*entries(1), secret(2), *entries(3)], sync=True)
    link = watched(folder / "s.session")
    await files.redact(lease, clean(2))
    assert link.read_bytes().strip(b"\0") == b""
    assert holding(folder) == []
    assert sorted(path.name for path in folder.iterdir()) == ["s.lock", "s.session"]
    await files.append(lease, entries(4), sync=True)
    assert await files.read("s") == [*entries(1), clean(2), *entries(3), *entries(4)]


async def test_an_append_stays_one_append_when_an_entry_of_it_is_redacted(folder, files):
    lease = await files.acquire("s")
    await files.append(lease, [secret(1), *entries(2, 2)], sync=True)
    await files.redact(lease, clean(1))
    lines = (folder / "s.session").read_bytes().splitlines()
    assert [line.split(b"{")[0][-1:] for line in lines[1:]] == [b"+", b"+", b" "]


async def test_a_redaction_reaches_the_mailbox_and_what_was_set_aside(folder, files):
    for post_id in ("e-1", "other"):
        await files.post("s", Post(post_id, "steer", f"it is {SECRET}" if post_id == "e-1" else "wait"))
    (folder / "s.quarantine").write_bytes(SECRET.encode())
    (folder / "s.posts.quarantine").write_bytes(SECRET.encode())
    lease = await files.acquire("s")
    await files.append(lease, [secret(1)], sync=True)
    assert len(holding(folder)) == 4
    await files.redact(lease, clean(1))
    assert holding(folder) == []
    assert await files.posts("s") == [Post("other", "steer", "wait")]


async def test_a_redaction_with_a_lease_that_is_gone_is_refused(files):
    lease = await files.acquire("s")
    await files.append(lease, [secret(1)], sync=True)
    log = files._logs["s"]
    await files.release(lease)
    for old in (lease, Lease("never", 1)):
        with pytest.raises(Fenced):
            await files.redact(old, clean(1))
    with pytest.raises(Fenced):
        log.redact(clean(1))
    log.sync()


async def test_an_entry_that_is_lost_cannot_be_redacted(folder, files, files_at):
    await files.append(await files.acquire("s"), entries(1, 3), sync=True)
    await files.aclose()
    content = (folder / "s.session").read_bytes()
    (folder / "s.session").write_bytes(content.replace(b'"e-2"', b'"e-9"'))
    store = files_at(folder)
    lease = await store.acquire("s")
    with pytest.raises(Conflict, match="has 3 entries and none numbered 2"):
        await store.redact(lease, clean(2))


async def test_what_is_to_be_erased_has_a_name_until_it_is(folder, files, monkeypatch):
    """So that, whoever is killed in between, the next one finds it."""
    lease = await files.acquire("s")
    await files.append(lease, [secret(1)], sync=True)
    before = (folder / "s.session").stat().st_ino
    named: list[int] = []
    real = os.replace

    def replace(*arguments):
        real(*arguments)
        named.extend(path.stat().st_ino for path in folder.glob(f"*{DOOMED_SUFFIX}"))

    monkeypatch.setattr(os, "replace", replace)
    await files.redact(lease, clean(1))
    assert named == [before]


@pytest.mark.parametrize("words", ["", "longer than what was there " * 20])
@pytest.mark.parametrize("nth", range(1, 16))
async def test_a_redaction_that_fails_anywhere_can_be_done_again(folder, files, monkeypatch, nth, words):
    replaced = Entry(2, 1.0, Custom("clean", words), "e-2")
    lease = await files.acquire("s")
    await files.append(lease, [*entries(1), secret(2)], sync=True)
    calls = iter(range(1, 1000))

    def failing(real):
        def call(*arguments, **options):
            if next(calls) == nth:
                raise OSError(5, "Input/output error")
            return real(*arguments, **options)

        return call

    for name in ("write", "fdatasync", "fsync", "replace", "link", "unlink", "lseek"):
        monkeypatch.setattr(os, name, failing(getattr(os, name)))
    try:
        await files.redact(lease, replaced)
    except StoreError as error:
        assert "disk" in str(error)  # noqa: PT017 - it may also succeed
    monkeypatch.undo()
    assert [entry.id for entry in await files.read("s")] == ["e-1", "e-2"]
    await files.redact(lease, replaced)
    await files.append(lease, entries(3), sync=True)
    assert await files.read("s") == [*entries(1), replaced, *entries(3)]
    assert holding(folder) == []


# -- deletion ----------------------------------------------------------------------------------------------------------


async def test_a_deleted_session_leaves_no_byte(folder, files, watched):
    await files.post("s", Post("p", "steer", SECRET))
    await files.append(await files.acquire("s"), [secret(1)], sync=True)
    await files.aclose()
    for name in ("s.quarantine", "s.posts.quarantine", "s.session.00.tmp", f"s.posts.00{DOOMED_SUFFIX}"):
        (folder / name).write_bytes(SECRET.encode())
    links = [watched(path) for path in folder.iterdir() if path.suffix != ".lock"]
    assert len(links) == 6
    await files.delete("s")
    assert list(folder.iterdir()) == []
    assert [link.name for link in links if link.read_bytes().strip(b"\0")] == []


# -- whoever reads meanwhile -------------------------------------------------------------------------------------------


@pytest.fixture
def meanwhile(monkeypatch):
    """Does something between the opening of a file and the first look at it."""

    def arrange(action):
        real, first = file_survey.scan_file, iter([True])

        def survey(*arguments):
            if next(first, False):
                action()
            return real(*arguments)

        monkeypatch.setattr(file_look, "scan_file", survey)

    return arrange


async def test_a_reader_of_a_file_that_is_redacted_meanwhile_reads_the_new_one(
    folder, files, files_at, meanwhile, caplog
):
    lease = await files.acquire("s")
    await files.append(lease, [*entries(1), secret(2)], sync=True)
    meanwhile(lambda: files._logs["s"].redact(clean(2)))
    assert await files_at(folder).read("s") == [*entries(1), clean(2)]
    assert caplog.messages == []


async def test_a_reader_of_a_session_that_is_deleted_meanwhile_reads_nothing(
    folder, files, files_at, meanwhile, caplog
):
    lease = await files.acquire("s")
    await files.append(lease, [secret(1)], sync=True)
    await files.release(lease)
    meanwhile(lambda: files._folder.delete("s"))
    assert await files_at(folder).read("s") == []
    assert caplog.messages == []


async def test_a_list_made_while_a_file_is_redacted_is_that_of_the_new_one(files, monkeypatch):
    lease = await files.acquire("s")
    await files.append(lease, [secret(1)], sync=True)
    real, first = file_summary.summarize_file, iter([True])

    def summary_of(*arguments):
        if next(first, False):
            found = real(*arguments)
            files._logs["s"].redact(clean(1))
            return found
        return real(*arguments)

    monkeypatch.setattr(file_catalogue, "summarize_file", summary_of)
    assert [info.title for info in await files.list()] == [""]


async def test_a_driver_reads_its_own_log_while_it_is_redacted(files, meanwhile):
    lease = await files.acquire("s")
    await files.append(lease, [*entries(1), secret(2)], sync=True)
    meanwhile(lambda: files._logs["s"].redact(clean(2)))
    assert await files.read("s") == [*entries(1), clean(2)]


async def test_what_a_rewritten_file_held_is_missed_when_it_is_gone(folder, files, files_at, tmp_path, caplog):
    """The whole file is on the disk then, also what was appended without waiting for it."""
    lease = await files.acquire("s")
    await files.append(lease, entries(1, 3), sync=False)
    await files.redact(lease, clean(1))
    copy = tmp_path / "copy"  # as a crash would leave it
    shutil.copytree(folder, copy)
    content = (copy / "s.session").read_bytes()
    (copy / "s.session").write_bytes(content[: content[:-1].rindex(b"\n") + 1])
    assert [entry.seq for entry in await files_at(copy).read("s")] == [1, 2]
    assert "entries are missing: 3" in caplog.text
