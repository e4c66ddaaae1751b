"""Files that were damaged: what is found of them, what is said, and how they are repaired."""

import asyncio
import bisect
import itertools
import os
from typing import Any

import msgspec
import pytest

from perdure import Agent, Status, StoreError, tool
from perdure._stores.file import disk as file_access
from perdure._stores.file import layout as file_record
from perdure._stores.file import log_file as file_log
from perdure._stores.file import repair as file_repair
from perdure._stores.file import scan
from perdure._stores.file.layout import encode_line, get_session_paths
from perdure._stores.file.scan import (
    NO_PROBLEMS,
    FileProblems,
    Header,
    build_damage_warning,
    decode_seq,
    encode_header,
    scan_file,
)
from perdure.events import Custom, EntriesLost, Entry, RunStarted, ToolFinished, ToolStarted
from perdure.stores import Conflict, FileStore, MemoryStore
from perdure.testing import ScriptedModel, call
from tests.seeds import chance
from tests.stores.material import entries

RECORDS = 200
LONG = os.environ.get("PERDURE_SEARCH") == "long"


def small(first: int, count: int = 1) -> list[Entry]:
    return [Entry(seq, 1.0, Custom("x"), f"{seq}") for seq in range(first, first + count)]


def batches():
    """200 entries, by ones, twos and threes."""
    first = 1
    for size in itertools.cycle((1, 2, 3)):
        if first > RECORDS:
            return
        yield small(first, min(size, RECORDS + 1 - first))
        first += size


@pytest.fixture
def whole(folder) -> bytes:
    """The content of a good file."""

    async def write() -> bytes:
        store = FileStore(folder)
        lease = await store.acquire("s")
        for batch in batches():
            await store.append(lease, batch, sync=batch[-1].seq == RECORDS)
        await store.aclose()
        return (folder / "s.session").read_bytes()

    return asyncio.run(write())


@pytest.fixture
def look(folder):
    """A survey of some content as the file of session `s`."""
    folder.mkdir(exist_ok=True)
    path = folder / "looked.at"
    place = get_session_paths(str(folder), "s")

    def make(content: bytes, *, size: int | None = None, synced: int = 0):
        if size is None:
            path.write_bytes(content)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return scan_file(descriptor, len(content) if size is None else size, place, synced)
        finally:
            os.close(descriptor)

    return make


@pytest.fixture
def without_syncs(monkeypatch):
    """For tests that lose no power, and repair many files."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)


def line_ends(content: bytes) -> list[int]:
    """Where the lines end, the header's first."""
    return [place + 1 for place, byte in enumerate(content) if byte == 10]


def numbers(found) -> list[int]:
    return [kept.seq for kept in found.entries]


# -- cut off -----------------------------------------------------------------------------------------------------------


def lengths(content: bytes) -> set[int]:
    """Every length up to the 40th line, and beyond it those near a line end and some between; or all there are."""
    ends = line_ends(content)
    near = {end + offset for end in ends for offset in (-1, 0, 1)}
    chosen = {*range(1, ends[40]), *range(ends[-2], len(content)), *near, *range(1, len(content), 31)}
    return set(range(1, len(content))) & (set(range(len(content))) if LONG else chosen)


@pytest.mark.faults
def test_a_file_cut_off_anywhere_keeps_what_was_whole_and_says_what_is_not(whole, look):
    assert look(whole, synced=RECORDS).problems == NO_PROBLEMS
    ends = line_ends(whole)
    appends = [0, *itertools.accumulate(len(batch) for batch in batches())]
    for size in sorted(lengths(whole)):
        lines = bisect.bisect_right(ends, size + 1) - 1  # the line end itself may be missing; -1 without the header
        for synced in (0, RECORDS) if LONG else [(0, RECORDS)[size % 2]]:
            found = look(whole, size=size, synced=synced)
            whole_lines = max(lines, 0)
            count = whole_lines if synced else appends[bisect.bisect_right(appends, whole_lines) - 1]
            assert numbers(found) == list(range(1, count + 1)), size
            is_told = found.problems != NO_PROBLEMS
            assert is_told or (not synced and lines == count and size in ends), size
            assert found.problems.missing == (((count + 1, RECORDS),) if count < synced else ()), size
            kept = min(ends[count], size) if lines >= 0 else 0
            assert sum(damage.end - damage.start for damage in found.damaged) == size - kept, size


def lengths_to_repair(content: bytes) -> list[int]:
    """Those in and around the header, near some line ends, and all of the last append; or all there are."""
    ends = line_ends(content)
    near = {end + offset for end in ends[::9] for offset in (-2, -1, 0, 1, 8)}
    chosen = {*range(0, ends[0] + 2, 5), *near, *range(ends[-4], len(content), 3)}
    return sorted(set(range(len(content))) & (set(range(len(content))) if LONG else chosen))


@pytest.mark.faults
async def test_a_file_cut_off_anywhere_is_repaired_and_goes_on(folder, whole, files_at, without_syncs, caplog):
    end_of_header = line_ends(whole)[0]
    for size in lengths_to_repair(whole):
        for path in folder.iterdir():
            path.unlink()
        (folder / "s.session").write_bytes(whole[:size])
        caplog.clear()
        store = files_at(folder)
        lease = await store.acquire("s")
        read = await store.read("s")
        assert read == small(1, len(read))
        repaired = (folder / "s.session").read_bytes()
        if size >= end_of_header:
            assert whole.startswith(repaired)
        quarantine = folder / "s.quarantine"
        set_aside = quarantine.read_bytes() if quarantine.exists() else b""
        kept = len(repaired) if size >= end_of_header - 1 else 0
        assert set_aside.endswith(whole[kept:size] + b"\n") or kept >= size
        is_whole = size in {0, *line_ends(whole)} and not set_aside
        assert len(caplog.messages) == (0 if is_whole else 1), size
        await store.append(lease, small(len(read) + 1, 2), sync=True)
        await store.aclose()
        again = files_at(folder)
        assert await again.read("s") == small(1, len(read) + 2)
        assert len(caplog.messages) == (0 if is_whole else 1), size
        await again.aclose()


# -- damaged inside ----------------------------------------------------------------------------------------------------


def flips(content: bytes) -> list[int]:
    """All of the header, the head of each tenth line and of the last, and some of the rest; or all there are."""
    ends = line_ends(content)
    heads = {start + place for start in (*ends[:-1:10], ends[-2]) for place in range(-1, 14)}
    rest = chance("flips").sample(range(len(content)), 100)
    return list(range(len(content))) if LONG else sorted({*range(ends[0]), *heads, *rest})


@pytest.mark.faults
def test_a_flipped_byte_costs_at_most_the_append_it_is_in_and_is_found(whole, look):
    ends = line_ends(whole)
    dice = chance("bytes")
    for place in flips(whole):
        flipped = bytearray(whole)
        flipped[place] ^= dice.randint(1, 255)
        found = look(bytes(flipped), synced=RECORDS)
        line = bisect.bisect_right(ends, place)  # 0 for the header
        lost = {line} if whole[place] != 10 and line else set()
        assert set(range(1, RECORDS + 1)) - set(numbers(found)) == lost, place
        assert found.problems != NO_PROBLEMS, place
        assert found.problems.missing == tuple((seq, seq) for seq in lost), place


async def test_a_repair_erases_what_killed_processes_have_left_beside_the_file(folder, whole, files):
    start, end = line_ends(whole)[99:101]
    (folder / "s.session").write_bytes(whole[:start] + whole[start:end].replace(b'"x"', b'"y"') + whole[end:])
    for name in ("s.session.00.tmp", "other.session.00.tmp"):
        (folder / name).write_bytes(b"left")
    await files.acquire("s")
    assert [path.name for path in folder.glob("*.tmp")] == ["other.session.00.tmp"]


async def test_a_flipped_byte_is_set_aside_with_its_line_and_the_rest_goes_on(folder, whole, files, caplog):
    start, end = line_ends(whole)[99:101]
    bad = whole[start:end].replace(b'"x"', b'"y"')
    (folder / "s.session").write_bytes(whole[:start] + bad + whole[end:])
    left = [*small(1, 99), *small(101, 100)]
    assert await files.read("s") == left
    assert await files.read("s") == left
    (warning,) = caplog.messages
    assert warning.endswith(
        f"s.session' was damaged: {end - start} bytes in one place are no entries, and stay there until the session is "
        "driven again; entries are missing: 100; 199 entries are good"
    )
    lease = await files.acquire("s")
    assert await files.read("s") == left
    assert await files.read("s", after=99) == left[99:]
    assert len(caplog.messages) == 2
    assert "were set aside in 's.quarantine'; entries are missing: 100;" in caplog.messages[1]
    assert (folder / "s.quarantine").read_bytes() == b"-- %d bytes from %d on:\n%b\n" % (end - start, start, bad)
    await files.append(lease, small(201), sync=True)
    await files.release(lease)
    await files.acquire("s")
    assert await files.read("s") == [*left, *small(201)]
    assert len(caplog.messages) == 2


async def test_a_gap_that_is_known_is_told_once_by_each_process(folder, whole, files_at, caplog):
    ends = line_ends(whole)
    (folder / "s.session").write_bytes(whole[: ends[0]] + whole[ends[2] : ends[9]] + whole[ends[12] :])
    for _ in range(2):
        store = files_at(folder)
        await store.release(await store.acquire("s"))
        await store.acquire("s")
        assert len(await store.read("s")) == 195
        await store.aclose()
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        "entries are missing: 1 to 2, 10 to 12; 195 entries are good"
    ] * 2


async def test_many_gaps_are_summed_up(folder, whole, files, caplog):
    lines = whole.splitlines(keepends=True)
    (folder / "s.session").write_bytes(b"".join([lines[0], *lines[2::2]]))
    assert len(await files.read("s")) == 100
    assert "entries are missing: 1, 3, 5, 7, 9 and in 95 more places; 100 entries are good" in caplog.text


@pytest.mark.parametrize("at", range(0, 12_000, 1777))
async def test_a_block_of_zeros_costs_what_it_covers(folder, whole, files, at, caplog):
    assert len(whole) > 12_000
    (folder / "s.session").write_bytes((whole[:at] + bytes(4096) + whole[at + 4096 :])[: len(whole)])
    ends = line_ends(whole)
    lease = await files.acquire("s")
    untouched = {seq for seq in range(1, RECORDS + 1) if ends[seq] <= at or ends[seq - 1] >= at + 4096}
    found = {entry.seq for entry in await files.read("s")}
    assert untouched <= found
    assert len(found - untouched) <= 1  # a line that has lost nothing but its end
    assert len(caplog.messages) == 1
    await files.append(lease, small(files._logs["s"].head + 1), sync=True)
    assert bytes(min(4096, len(whole) - at)) in (folder / "s.quarantine").read_bytes()


async def test_lines_twice_and_out_of_order_are_put_right(folder, whole, files, files_at, caplog):
    lines = whole.splitlines(keepends=True)
    shuffled = [*lines[1:], *lines[50:80]]
    chance("order").shuffle(shuffled)
    (folder / "s.session").write_bytes(b"".join([lines[0], lines[0], *shuffled]))
    assert await files.read("s") == small(1, RECORDS)
    await files.acquire("s")
    assert len(caplog.messages) == 2
    assert (folder / "s.session").read_bytes().splitlines()[-1].endswith(lines[-1][14:].rstrip())
    await files.aclose()
    assert await files_at(folder).read("s") == small(1, RECORDS)
    assert len(caplog.messages) == 2


async def test_a_file_whose_end_alone_is_damaged_is_shortened_and_not_written_anew(folder, whole, files, caplog):
    path = folder / "s.session"
    with path.open("ab") as file:
        file.write(b"half a li")
    before = path.stat().st_ino
    await files.acquire("s")
    assert len(caplog.messages) == 1
    assert (path.stat().st_ino, path.read_bytes()) == (before, whole)
    assert b"half a li" in (folder / "s.quarantine").read_bytes()


async def test_lines_in_disorder_are_told_without_any_loss(folder, whole, files, caplog):
    lines = whole.splitlines(keepends=True)
    (folder / "s.session").write_bytes(b"".join([*lines[:-2], lines[-1], lines[-2]]))
    await files.acquire("s")
    assert "its lines were in disorder; 200 entries are good" in caplog.text
    assert not (folder / "s.quarantine").exists()
    assert (folder / "s.session").read_bytes() == whole


async def test_of_two_entries_with_one_number_the_first_counts_and_the_other_is_set_aside(folder, files, caplog):
    lease = await files.acquire("s")
    await files.append(lease, entries(1, 2), sync=True)
    await files.aclose()
    other = encode_line(
        b'{"seq":2,"at":1.0,"event":{"kind":"custom","name":"other"},"id":"o"}', get_session_paths("", "s").seed
    )
    with (folder / "s.session").open("ab") as file:
        file.write(other)
    await files.acquire("s")
    assert await files.read("s") == entries(1, 2)
    assert other in (folder / "s.quarantine").read_bytes()
    assert len(caplog.messages) == 1


async def test_half_an_append_counts_only_when_it_was_synced(folder, files_at, caplog):
    store = files_at(folder)
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=True)
    await store.append(lease, entries(2, 3), sync=False)
    await store.aclose()
    content = (folder / "s.session").read_bytes()
    ends = line_ends(content)
    for size in (ends[2], ends[3], ends[3] + 5):
        (folder / "s.session").write_bytes(content[:size])
        assert await files_at(folder).read("s") == entries(1)
    (folder / "s.session").write_bytes(content)
    lease = await store.acquire("s")
    await store.append(lease, entries(5), sync=True)
    await store.aclose()
    (folder / "s.session").write_bytes(content[: ends[3] + 5])
    await store.acquire("s")
    assert await store.read("s") == entries(1, 3)
    assert "entries are missing: 4 to 5; 3 entries are good" in caplog.messages[-1]
    (folder / "s.lock").unlink()  # what says that they had been synced
    assert await files_at(folder).read("s") == entries(1, 3)


async def test_an_end_that_was_synced_and_is_gone_is_missed(folder, whole, files, caplog):
    (folder / "s.session").write_bytes(whole[: line_ends(whole)[150]])
    assert await files.read("s") == small(1, 150)
    assert caplog.messages[0].endswith("entries are missing: 151 to 200; 150 entries are good")
    lost, head = [EntriesLost(151, 200)], 200
    assert (await files.events("s", after=149))[0][1:] == lost
    lease = await files.acquire("s")
    assert await files.events("s", after=150) == (lost, head)
    with pytest.raises(Conflict):
        await files.append(lease, small(151), sync=True)  # the number of an entry that is lost
    await files.append(lease, small(201), sync=True)
    assert (await files.read("s"))[149:] == [*small(150), *small(201)]
    assert len(caplog.messages) == 1
    await files.aclose()
    assert (await files.events("s", after=150))[0] == [*lost, small(201)[0].event]


@pytest.mark.parametrize("fate", ["deleted", "emptied"])
async def test_a_whole_file_that_is_gone_is_missed(folder, whole, files, fate, caplog):
    if fate == "deleted":
        (folder / "s.session").unlink()
    else:
        (folder / "s.session").write_bytes(b"")
    assert await files.read("s") == []
    assert "entries are missing: 1 to 200; 0 entries are good" in caplog.text
    lease = await files.acquire("s")
    assert await files.events("s") == ([EntriesLost(1, 200)], 200)
    await files.append(lease, small(201), sync=True)
    assert await files.read("s") == small(201)
    assert len(caplog.messages) == 1


async def test_a_line_longer_than_any_is_set_aside(folder, whole, files, monkeypatch):
    limit = 4 * 1024 * 1024
    monkeypatch.setattr(file_record, "MAX_BODY_BYTES", limit)
    end = line_ends(whole)[96]  # between two appends
    with (folder / "s.session").open("r+b") as file:
        file.seek(end)
        file.truncate()
        file.write(b"%d 00000000 {" % (limit + 1))
        file.seek(2 * limit, os.SEEK_CUR)
        file.write(b"\n" + whole[end:])
    await files.acquire("s")
    assert len(await files.read("s")) == RECORDS
    assert (folder / "s.session").read_bytes() == whole
    quarantine = (folder / "s.quarantine").stat()
    assert quarantine.st_size > 2 * limit
    assert quarantine.st_blocks * 512 < limit  # the zeros take no room


async def test_large_entries_are_written_anew_in_parts(folder, files, files_at):
    large = [Entry(seq, 1.0, Custom("x" * 700_000), f"e-{seq}") for seq in range(1, 6)]
    await files.append(await files.acquire("s"), large, sync=True)
    await files.aclose()
    content = (folder / "s.session").read_bytes()
    (folder / "s.session").write_bytes(content.replace(b'"e-2"', b'"e-9"'))
    await files.acquire("s")
    expected = [large[0], *large[2:]]
    assert await files.read("s") == expected
    assert await files.read("s") == expected
    assert await files_at(folder).read("s") == expected


# -- holes in what was never synced ------------------------------------------------------------------------------------


async def keep(store, *batches, synced: int) -> None:
    """Append, with a barrier up to that number."""
    lease = await store.acquire("s")
    for batch in batches:
        await store.append(lease, batch, sync=batch[-1].seq <= synced)
    await store.aclose()


def lose(folder, *seqs: int) -> bytes:
    """Zeros in the place of these entries; what the file holds then."""
    path = folder / "s.session"
    content = path.read_bytes()
    ends = line_ends(content)
    for seq in seqs:
        content = content[: ends[seq - 1]] + bytes(ends[seq] - ends[seq - 1]) + content[ends[seq] :]
    path.write_bytes(content)
    return content


async def test_a_hole_in_what_was_never_synced_ends_the_log(folder, files, files_at, caplog):
    await keep(files, small(1, 2), *[small(seq) for seq in (3, 4, 5)], synced=2)
    content = lose(folder, 4)
    lost = content[content.index(bytes(8)) :]
    assert await files.read("s") == small(1, 3)
    assert (await files.info("s")).entries == 3
    (warning,) = caplog.messages
    assert f"{len(lost)} bytes in one place are no entries, or follow what never reached the disk, and stay" in warning
    lease = await files.acquire("s")
    assert "were set aside in 's.quarantine'; 3 entries are good" in caplog.messages[1]
    assert lost in (folder / "s.quarantine").read_bytes()
    await files.append(lease, small(4), sync=True)
    assert await files_at(folder).read("s") == small(1, 4)
    assert len(caplog.messages) == 2


async def test_an_append_with_a_hole_that_was_never_synced_is_gone_as_a_whole(folder, files):
    await keep(files, small(1), small(2, 3), small(5), synced=1)
    lose(folder, 3)
    assert await files.read("s") == small(1)
    await files.acquire("s")
    assert await files.read("s") == small(1)


async def test_behind_a_hole_in_what_was_synced_the_rest_goes_on(folder, files):
    await keep(files, *[small(seq) for seq in range(1, 6)], synced=3)
    lose(folder, 3)
    assert [entry.seq for entry in await files.read("s")] == [1, 2, 4, 5]


async def test_a_hole_that_reaches_into_what_was_never_synced_ends_the_log_there(folder, files):
    await keep(files, *[small(seq) for seq in range(1, 7)], synced=4)
    lose(folder, 2, 4, 5)
    assert [entry.seq for entry in await files.read("s")] == [1, 3]
    await files.acquire("s")
    assert [entry.seq for entry in await files.read("s")] == [1, 3]


async def test_a_header_that_was_never_synced_costs_no_entry(folder, files):
    await keep(files, small(1), small(2), synced=0)
    path = folder / "s.session"
    path.write_bytes(b"x" + path.read_bytes()[1:])
    assert await files.read("s") == small(1, 2)


async def test_a_gap_that_was_left_by_a_repair_stays_as_it_is(folder, files, files_at):
    """Also when nobody knows any more what had been synced."""
    await keep(files, small(1), small(2), small(3), synced=3)
    lose(folder, 2)
    await files.acquire("s")
    await files.aclose()
    (folder / "s.lock").unlink()
    again = files_at(folder)
    await again.acquire("s")
    assert [entry.seq for entry in await again.read("s")] == [1, 3]


async def test_a_hole_is_no_beginning_of_an_append(folder, files, files_at, caplog):
    lease = await files.acquire("s")
    for seq in (1, 2, 3):
        await files.append(lease, small(seq), sync=False)
    lose(folder, 2)
    assert await files_at(folder).read("s") == small(1)
    assert "follow what never reached the disk" in caplog.text


# -- headers -----------------------------------------------------------------------------------------------------------


async def test_a_header_is_made_again_from_the_first_entry(folder, files, caplog):
    await files.append(await files.acquire("s"), [Entry(1, 77.0, Custom("x"), "e-1")], sync=True)
    await files.aclose()
    content = (folder / "s.session").read_bytes()
    (folder / "s.session").write_bytes(content[content.index(b"\n") + 1 :])
    await files.acquire("s")
    assert [(info.created_at, info.entries) for info in await files.list()] == [(77.0, 1)]
    header = (folder / "s.session").read_bytes().splitlines()[0]
    assert b'"created_at":77.0' in header
    assert len(caplog.messages) == 1


async def test_a_file_without_one_good_line_is_ours_when_entries_had_been_stored_there(folder, files):
    await files.append(await files.acquire("s"), entries(1), sync=True)
    await files.aclose()
    (folder / "s.session").write_bytes(b"scribble" * 20)
    await files.acquire("s")
    assert await files.read("s") == []
    assert b"scribble" * 20 in (folder / "s.quarantine").read_bytes()


@pytest.mark.parametrize("name", ["perdure", "other"])
async def test_a_file_from_before_the_first_release_is_refused_and_left_as_it_is(folder, files, name):
    folder.mkdir()
    header = b'{"%b":"session","format":1,"id":"s","tenant":"","owner":"","created_at":1.5}' % name.encode()
    content = encode_line(header, 0) + b"".join(lines_of(1))
    (folder / "s.session").write_bytes(content)
    for refused in (files.read("s"), files.acquire("s"), files.delete("s")):
        with pytest.raises(StoreError, match="or one of a version of perdure before the first release, and has been"):
            await refused
    assert (folder / "s.session").read_bytes() == content
    assert await files.list() == []


async def test_a_file_of_a_newer_format_is_refused(folder, files, caplog):
    folder.mkdir()
    content = encode_line(b'{"perdure":"session-file","format":2,"of":{"a":"kind"}}', 0) + b"who knows"
    (folder / "s.session").write_bytes(content)
    for refused in (files.acquire("s"), files.read("s")):
        with pytest.raises(StoreError, match=r"has format 2, and this version knows 1 at most: upgrade perdure"):
            await refused
    assert (folder / "s.session").read_bytes() == content
    assert await files.list() == await files.list() == []
    assert caplog.text.count("is not listed") == 1


async def test_a_file_under_the_name_of_another_session_is_refused(folder, whole, files):
    (folder / "copy.session").write_bytes(whole)
    for refused in (files.acquire("copy"), files.read("copy")):
        with pytest.raises(StoreError, match=r"should hold session 'copy' and holds 's'"):
            await refused
    assert (folder / "copy.session").read_bytes() == whole


@pytest.mark.parametrize("content", [b"x", b"hello\n" * 1000, b"\x7fELF", b'{"role":"user"}\n', b"12 monkeys and more"])
async def test_a_file_that_is_not_ours_is_left_as_it_is(folder, files, content):
    folder.mkdir()
    (folder / "s.session").write_bytes(content)
    for refused in (files.acquire("s"), files.read("s")):
        with pytest.raises(StoreError, match=r"is no file of a session, and has been left as it is"):
            await refused
    assert (folder / "s.session").read_bytes() == content


# -- who repairs, and how ----------------------------------------------------------------------------------------------


async def test_the_beginning_of_an_append_is_no_damage_while_its_driver_lives(folder, files, files_at, caplog):
    lease = await files.acquire("s")
    await files.append(lease, entries(1, 2), sync=True)
    with (folder / "s.session").open("ab") as file:
        file.write(b'70 0000beef+{"seq":3,')
    reader = files_at(folder)
    assert await reader.read("s") == entries(1, 2)
    assert caplog.messages == []
    await files.aclose()
    assert await reader.read("s") == entries(1, 2)
    assert len(caplog.messages) == 1


async def test_a_reader_changes_nothing(folder, whole, files):
    damaged = whole[:5000] + b"?" + whole[5001:-3]
    (folder / "s.session").write_bytes(damaged)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    await files.read("s")
    await files.list()
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert (folder / "s.session").read_bytes() == damaged


@pytest.mark.parametrize("case", list(itertools.product(["cut off", "in the middle"], range(1, 12))))
async def test_a_repair_that_fails_anywhere_loses_nothing(folder, whole, files, monkeypatch, case):
    """The N-th call to the disk fails, for each N that there is."""
    damage, nth = case
    damaged = whole[:-5] if damage == "cut off" else whole[:5000] + b"?" + whole[5001:]
    (folder / "s.session").write_bytes(damaged)
    calls = itertools.count(1)

    def failing(real):
        def call(*arguments):
            if next(calls) == nth:
                raise OSError(5, "Input/output error")
            return real(*arguments)

        return call

    for module, name in (
        *((file_repair, name) for name in ("write_all", "sync_data", "sync_folder", "open_file")),
        *((os, name) for name in ("fsync", "ftruncate", "replace", "lseek")),
        (file_log, "scan_file"),
    ):
        monkeypatch.setattr(module, name, failing(getattr(module, name)))
    try:
        await files.acquire("s")
    except StoreError as error:
        assert "the disk reported an error" in str(error)  # noqa: PT017 - it may also succeed
    monkeypatch.undo()
    await files.aclose()
    await files.acquire("s")
    assert len(await files.read("s")) == RECORDS - 1
    lost = damaged[-20:] if damage == "cut off" else damaged[4990:5010]
    assert lost in (folder / "s.quarantine").read_bytes()
    assert not list(folder.glob("*.tmp"))
    log = files._logs["s"]
    assert file_access._open == {log._descriptor, log._lock._descriptor}


# -- runs --------------------------------------------------------------------------------------------------------------


def payer(store, paid: list[str]) -> Agent:
    """An agent that pays once, and says so."""

    @tool
    async def pay() -> str:
        """Pay."""
        paid.append("paid")
        return "paid"

    return Agent(ScriptedModel(call("pay"), "Done."), tools=[pay], store=store)


async def interrupted(store, paid: list[str]) -> Agent:
    """An agent whose process died while it paid."""
    memory = MemoryStore()
    await payer(memory, paid).session("s").run("go", input_id="order")
    log = await memory.read("s")
    lease = await store.acquire("s")
    for entry in itertools.takewhile(lambda entry: not isinstance(entry.event, ToolFinished), log):
        await store.append(lease, [entry], sync=isinstance(entry.event, RunStarted | ToolStarted))
    await store.aclose()
    return payer(store, paid)


def damage_line(folder, kind: bytes) -> None:
    """Flip a bit in the line of an event."""
    path = folder / "s.session"
    content = bytearray(path.read_bytes())
    content[content.index(kind)] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("kind", [b"tool_started", b'"assistant"', b"model_requested"])
async def test_a_run_that_has_lost_an_entry_is_not_gone_on_with_and_says_so(folder, files, kind):
    paid: list[str] = []
    agent = await interrupted(files, paid)
    damage_line(folder, kind)
    outcome = await agent.session("s").resume()
    assert (outcome.status, outcome.reason, paid) == ("failed", "log_damaged", ["paid"])
    with pytest.raises(StoreError, match="check those, then go on with run"):
        outcome.unwrap()
    results = [each.event.result for each in await files.read("s") if isinstance(each.event, ToolFinished)]
    assert [each.status for each in results] == [Status.UNKNOWN]
    assert (await payer(files, paid).session("s").run("what now?")).status == "done"


async def test_an_input_that_may_have_had_its_run_is_not_run_again(folder, files):
    paid: list[str] = []
    agent = await interrupted(files, paid)
    damage_line(folder, b"run_started")
    with pytest.raises(StoreError, match="the input 'order' may have been among them"):
        await agent.session("s").run("go", input_id="order")
    assert paid == ["paid"]


async def test_a_name_can_be_given_to_a_session_whose_end_is_lost(folder, whole, files):
    (folder / "s.session").write_bytes(whole[: line_ends(whole)[150]])
    await Agent(ScriptedModel("Hi."), store=files).session("s").rename("torn")
    assert (await files.info("s")).title == "torn"


# -- a file that is replaced all the time ------------------------------------------------------------------------------


def test_a_file_that_is_replaced_all_the_time_is_given_up_after_twenty_looks(
    folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    place = get_session_paths(str(folder), "s")
    content = encode_header(Header("session-file", 1, "s", "", "", 0.0)).replace(b'"id":"s"', b'"id":"t"')
    (folder / "s.session").write_bytes(content)
    opened: list[int] = []
    closed: list[int] = []

    def note_and_open(path: str, flags: int) -> int:
        opened.append(file_access.open_file(path, flags))
        return opened[-1]

    def note_and_close(descriptor: int) -> None:
        closed.append(descriptor)
        file_access.close_file(descriptor)

    monkeypatch.setattr(scan, "get_file_identity", lambda _: object())
    monkeypatch.setattr(scan, "open_file", note_and_open)
    monkeypatch.setattr(scan, "close_file", note_and_close)
    assert scan.read_header_and_size(place.log) == (None, 0)
    assert len(opened) == len(closed) == 20
    found = scan.scan_unlocked(place)
    assert [(each.start, each.end) for each in found.damaged] == [(0, len(content))]
    assert len(opened) == len(closed) == 40
    monkeypatch.setattr(scan, "get_file_identity", file_access.get_file_identity)
    assert scan.read_header_and_size(place.log) == (None, 0)
    assert scan.scan_unlocked(place).damaged
    assert len(opened) == len(closed) == 42


def test_a_header_is_read_with_the_bytes_it_takes(folder: Any, whole: bytes) -> None:
    header, size = scan.read_header_and_size(str(folder / "s.session"))
    assert header is not None
    assert (header.id, size) == ("s", whole.index(b"\n") + 1)
    assert scan.read_header(str(folder / "s.session")) == header
    assert scan.read_header_and_size(str(folder / "none.session")) == (None, 0)
    missing = scan.scan_unlocked(get_session_paths(str(folder), "none"), 0)
    assert (missing.entries, missing.head, missing.problems) == ([], 0, NO_PROBLEMS)


@pytest.mark.parametrize("step", ["write", "sync", "rename", "sync the folder"])
def test_a_file_that_cannot_be_rewritten_is_closed_and_leaves_nothing_beside_it(
    folder: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(5, "the disk is on fire")

    folder.mkdir()
    (folder / "s.session").write_bytes(b"as it was")
    place = get_session_paths(str(folder), "s")
    header = Header("session-file", 1, "s", "", "", 0.0)
    closed: list[int] = []

    def note_and_close(descriptor: int) -> None:
        closed.append(descriptor)
        file_access.close_file(descriptor)

    monkeypatch.setattr(file_repair, "close_file", note_and_close)
    if step == "rename":
        monkeypatch.setattr(os, "replace", fail)
    else:
        names = {"write": "write_all", "sync": "sync_data", "sync the folder": "sync_folder"}
        monkeypatch.setattr(file_repair, names[step], fail)
    with pytest.raises(OSError, match="the disk is on fire"):
        file_repair.rewrite_file(place, header, [])
    assert len(closed) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(closed[0])
    assert [path.name for path in folder.iterdir()] == ["s.session"]
    assert ((folder / "s.session").read_bytes() == b"as it was") is (step != "sync the folder")


# -- what a scan finds -------------------------------------------------------------------------------------------------


HEADER = Header("session-file", 1, "s", "", "", 5.0, key="k")


def lines_of(*numbers: int, more: bool = False) -> list[bytes]:
    """The lines of entries with these numbers in the file of session `s`, each an append, or all of them one."""
    seed = get_session_paths("", "s").seed
    return [
        encode_line(b'{"seq":%d,"at":1.0}' % number, seed, has_more=more and number != numbers[-1])
        for number in numbers
    ]


def tell(found: Any) -> tuple[Any, ...]:
    """What a scan found: numbers that belong together in one string, damaged bytes, disorder, gaps, where to cut."""
    kept = "".join([f"{each.seq}{'+' if each.has_more else ' '}" for each in found.entries])
    damaged = [(each.start, each.end) for each in found.damaged]
    return kept.strip(), damaged, found.is_disordered, found.gaps, found.truncate_at


START = len(encode_header(HEADER))
SIZE = len(lines_of(1)[0])
END = START + SIZE


@pytest.mark.parametrize(
    ("lines", "synced", "expected"),
    [
        ([], 0, ("", [], False, [], None)),
        (lines_of(1, 2, 3), 0, ("1 2 3", [], False, [], None)),
        (lines_of(1, 2, 3, more=True), 0, ("1+2+3", [], False, [], None)),
        (lines_of(1, 4, 5, 8), 0, ("1 4 5 8", [], False, [(2, 3), (6, 7)], None)),
        (lines_of(2), 0, ("2", [], False, [(1, 1)], None)),
        (lines_of(2, 1), 0, ("1 2", [], True, [], None)),
        (lines_of(1, 1), 0, ("1", [(END, END + SIZE)], False, [], END)),
        (lines_of(0, 1), 0, ("1", [(START, END)], False, [], None)),
        ([*lines_of(1), lines_of(2)[0][:-1]], 0, ("1 2", [], True, [], None)),
        # the first lines of an append that did not come to its end
        (lines_of(1, 2, 3, more=True)[:2], 0, ("", [(START, END + SIZE)], False, [], START)),
        (lines_of(1, 2, 3, more=True)[:2], 1, ("1", [(END, END + SIZE)], True, [], None)),
        (lines_of(1, 2, 3, more=True)[:2], 2, ("1+2", [], True, [], None)),
        # bytes that are no line
        ([*lines_of(1), b"x" * 9], 1, ("1", [(END, END + 9)], False, [], END)),
        ([*lines_of(1), b"x" * 9, *lines_of(3)], 3, ("1 3", [(END, END + 9)], False, [(2, 2)], None)),
        ([*lines_of(1), b"x" * 9, *lines_of(3)], 1, ("1", [(END, END + SIZE + 9)], False, [], END)),
        ([*lines_of(1), b"x" * 9, *lines_of(3)], 2, ("1 3", [(END, END + 9)], False, [(2, 2)], None)),
        (
            [*lines_of(1), b"x" * 9, *lines_of(3, 4)],
            None,
            ("1 3 4", [(END, END + 9)], False, [(2, 2)], None),
        ),
        (
            [*lines_of(1, 2, more=True)[:1], b"x" * 9, *lines_of(3)],
            3,
            ("1 3", [(END, END + 9)], True, [(2, 2)], None),
        ),
    ],
)
def test_a_scan_finds_entries_damage_gaps_and_where_to_cut(
    look: Any, lines: list[bytes], synced: int | None, expected: tuple[Any, ...]
) -> None:
    found = look(encode_header(HEADER) + b"".join(lines), synced=synced)
    assert (found.header, tell(found)) == (HEADER, expected)
    assert found.is_sound is (not expected[1] and not expected[2])
    head = found.entries[-1].seq if found.entries else 0
    missing = [*expected[3], *([(head + 1, synced)] if synced and synced > head else [])]
    assert found.head == head
    assert found.problems == FileProblems(tuple(found.damaged), expected[2], tuple(missing))


def test_the_entries_of_a_fork_are_numbered_above_those_it_shares(look: Any) -> None:
    header = msgspec.structs.replace(HEADER, parent="p", parent_key="pk", at=3)
    start = len(encode_header(header))
    found = look(encode_header(header))
    assert (found.head, tell(found)) == (3, ("", [], False, [], None))
    found = look(encode_header(header) + b"".join(lines_of(3, 4, 6)))
    assert (found.head, tell(found)) == (6, ("4 6", [(start, start + SIZE)], False, [(5, 5)], None))


@pytest.mark.parametrize("synced", [0, 2])
def test_a_file_without_a_header_is_in_disorder_and_its_entries_are_kept(look: Any, synced: int) -> None:
    found = look(b"".join(lines_of(1, 2)), synced=synced)
    assert (found.header, found.is_sound, tell(found)) == (None, False, ("1 2", [], True, [], None))
    assert not look(b"").is_disordered
    found = look(b"x" * 9 + b"".join(lines_of(1, 2)), synced=synced)
    assert (found.header, tell(found)) == (None, ("1 2", [(0, 9)], True, [], None))
    unended = look(encode_header(HEADER)[:-1])
    assert (unended.header, tell(unended)) == (HEADER, ("", [], True, [], None))


def test_the_end_of_a_file_is_left_out_while_somebody_may_be_writing_it(look: Any) -> None:
    good = encode_header(HEADER) + lines_of(1)[0]
    found = look(good + b"x" * 9)
    found.ignore_tail()
    assert (found.size, found.damaged) == (len(good), [])
    found.ignore_tail()
    assert found.size == len(good)
    for content, synced in ((b"x" * 9 + good, 1), (good + b"x" * 9 + lines_of(3)[0], 1)):
        found = look(content, synced=synced)
        damaged = list(found.damaged)
        found.ignore_tail()
        assert (found.size, found.damaged) == (len(content), damaged)


@pytest.mark.parametrize(
    ("content", "is_ours"),
    [
        (b"\0" * 100, True),
        (b"1", True),
        (b"123 ", True),
        (b"123 01234567", True),
        (b"123 012345678", False),
        (b"x23 01234567", False),
        (b"123 01234567 {", True),
        (b'123 01234567 {"perdure":"sess', True),
        (b'123 01234567 {"perdure":"session-\0\0\0\0', True),
        (b'123 01234567 {"perdure":"session","format":1', False),
        (b'123 01234567 {"perdure":"session-file","format":1,"id":"s"', True),
        (b'123 01234567 {"seq":1', False),
        (b"dear diary", False),
    ],
)
def test_a_file_without_a_line_is_ours_if_it_may_be_the_beginning_of_one(
    folder: Any, look: Any, content: bytes, is_ours: bool
) -> None:
    if is_ours:
        assert tell(look(content)) == ("", [(0, len(content))], True, [], None)
        return
    assert look(content, synced=1).entries == []  # entries had been stored there
    with pytest.raises(StoreError) as refused:
        look(content)
    path = str(folder / "s.session")
    assert str(refused.value) == f"{path!r} is no file of a session, and has been left as it is: choose another folder"


def test_a_header_that_cannot_be_used_is_told(folder: Any, look: Any) -> None:
    path = str(folder / "s.session")
    newer = msgspec.structs.replace(HEADER, format=2)
    too_new = "has format 2, and this version knows 1 at most: upgrade perdure"
    other = msgspec.structs.replace(HEADER, id="t")
    misplaced = "should hold session 's' and holds 't': give the file its own name back"
    for header, problem in ((newer, too_new), (other, misplaced)):
        with pytest.raises(StoreError) as refused:
            look(encode_header(header))
        assert str(refused.value) == f"{path!r} {problem}"


@pytest.mark.parametrize(
    ("body", "seq"),
    [(b'{"seq":12,"at":1}', 12), (b'{"seq":-1,"at":1}', 0), (b'{"seq":1.5,"at":1}', 0), (b'{"at":1,"seq":12}', 0)],
)
def test_the_number_of_an_entry_is_what_its_json_begins_with(body: bytes, seq: int) -> None:
    assert decode_seq(body) == seq


STAY = "stay there until the session is driven again"


@pytest.mark.parametrize(
    ("lines", "synced", "told"),
    [
        (lines_of(2, 1), 0, "its lines were in disorder; 2 entries are good"),
        (
            [b"x" * 9, *lines_of(1)],
            1,
            "9 bytes in one place are no entries, and were set aside in 's.quarantine'; 1 entries are good",
        ),
        (
            [b"x" * 9, *lines_of(1), b"y"],
            1,
            f"10 bytes in 2 places are no entries, and {STAY}; 1 entries are good",
        ),
        (
            [b"x" * 9, *lines_of(3)],
            1,
            (
                f"{9 + SIZE} bytes in one place are no entries, or follow what never reached the disk, and {STAY}; "
                "entries are missing: 1; 0 entries are good"
            ),
        ),
        (lines_of(2, 5), 9, "entries are missing: 1, 3 to 4, 6 to 9; 2 entries are good"),
        (lines_of(2, 4, 6, 8), 9, "entries are missing: 1, 3, 5, 7, 9; 4 entries are good"),
        (
            lines_of(2, 4, 6, 8),
            14,
            "entries are missing: 1, 3, 5, 7, 9 to 14; 4 entries are good",
        ),
        (
            [*lines_of(2, 4, 6, 8), b"".join(lines_of(*range(11, 20, 2)))],
            19,
            "entries are missing: 1, 3, 5, 7, 9 to 10 and in 4 more places; 9 entries are good",
        ),
    ],
)
def test_the_warning_about_a_damaged_file_says_what_is_lost_and_what_is_good(
    folder: Any, look: Any, lines: list[bytes], synced: int, told: str
) -> None:
    found = look(encode_header(HEADER) + b"".join(lines), synced=synced)
    path = str(folder / "s.session")
    assert build_damage_warning(found, is_repaired="were set aside" in told) == f"the file {path!r} was damaged: {told}"
