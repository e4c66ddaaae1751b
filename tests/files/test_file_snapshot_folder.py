"""The folder of snapshots: what is stored under its digest, what is refused, and what is removed when."""

# ruff: noqa: PTH208 - the descriptors that are open are counted
import fcntl
import os
from pathlib import Path

import pytest

from perdure import ConfigError
from perdure._io.files.jail import compute_digest
from perdure.hosts import SnapshotFolder
from perdure.stores import RemovedSnapshots
from tests.doubles import list_open_below

ONE, TWO = compute_digest(b"one"), compute_digest(b"two")


@pytest.fixture
def snapshots(tmp_path):
    return SnapshotFolder(tmp_path / "snapshots")


def stored_in(snapshots: SnapshotFolder) -> dict[str, bytes]:
    files = [each for each in Path(snapshots.folder).rglob("*") if each.is_file()]
    return {f"{each.parent.name}/{each.name}": each.read_bytes() for each in files}


def set_time(snapshots: SnapshotFolder, digest: str, seconds: float) -> None:
    os.utime(Path(snapshots.folder, digest[:2], digest[2:]), (seconds, seconds))


def test_a_content_is_stored_under_its_digest_for_the_owner_alone(snapshots):
    assert snapshots.save(b"one") == ONE
    assert stored_in(snapshots) == {f"{ONE[:2]}/{ONE[2:]}": b"one"}
    assert snapshots.load(ONE) == b"one"
    place = Path(snapshots.folder, ONE[:2], ONE[2:])
    assert [each.stat().st_mode & 0o777 for each in (place, place.parent, place.parent.parent)] == [0o600, 0o700, 0o700]


def test_a_folder_that_others_could_read_is_closed_to_them(snapshots):
    Path(snapshots.folder).mkdir(mode=0o755)
    snapshots.save(b"one")
    assert Path(snapshots.folder).stat().st_mode & 0o777 == 0o700


def test_the_folder_of_a_user_may_be_named_with_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert SnapshotFolder("~/kept").folder == str(tmp_path / "kept")


def test_a_content_that_is_stored_again_has_the_time_of_that(snapshots):
    snapshots.save(b"one")
    set_time(snapshots, ONE, 1_000)
    assert snapshots.has_stored_before(1_001)
    assert not snapshots.has_stored_before(1_000)
    assert snapshots.save(b"one") == ONE
    assert not snapshots.has_stored_before(1_001)
    assert stored_in(snapshots) == {f"{ONE[:2]}/{ONE[2:]}": b"one"}


def test_what_was_stored_before_a_time_is_pruned_and_the_rest_is_kept(snapshots):
    for data, digest, seconds in ((b"one", ONE, 1_000), (b"two", TWO, 1_010)):
        snapshots.save(data)
        set_time(snapshots, digest, seconds)
    assert snapshots.prune(10, now=1_010) == 0
    assert snapshots.prune(10, now=1_020) == 1
    assert stored_in(snapshots) == {f"{TWO[:2]}/{TWO[2:]}": b"two"}


def test_what_is_not_used_and_was_stored_before_a_time_is_removed_and_counted(snapshots):
    three = snapshots.save(b"three")
    for data, digest in ((b"one", ONE), (b"two", TWO)):
        snapshots.save(data)
        set_time(snapshots, digest, 1_000)
    assert snapshots.remove_unused({TWO}, stored_before=2_000) == RemovedSnapshots(count=1, size_bytes=3)
    assert stored_in(snapshots) == {f"{TWO[:2]}/{TWO[2:]}": b"two", f"{three[:2]}/{three[2:]}": b"three"}


def test_what_is_stored_again_while_others_are_looked_at_is_kept(snapshots, monkeypatch):
    snapshots.save(b"one")
    set_time(snapshots, ONE, 1_000)
    lock = fcntl.flock

    def store_first(descriptor: int, operation: int) -> None:
        set_time(snapshots, ONE, 2_000)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", store_first)
    assert snapshots.remove_unused((), stored_before=2_000) == RemovedSnapshots(count=0, size_bytes=0)
    assert snapshots.load(ONE) == b"one"


@pytest.mark.parametrize("step", ["replace", "unlink"])
def test_the_folder_is_locked_while_a_content_gets_its_name_and_while_one_is_removed(snapshots, monkeypatch, step):
    really, locked = getattr(os, step), []

    def watch(*arguments: str) -> None:
        descriptor = os.open(snapshots.folder, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        locked.append(Path(arguments[-1]).name)
        really(*arguments)

    monkeypatch.setattr(os, step, watch)
    snapshots.save(b"one")
    set_time(snapshots, ONE, 1_000)
    snapshots.prune(0, now=2_000)
    assert (locked, stored_in(snapshots), list_open_below(snapshots.folder)) == ([ONE[2:]], {}, [])


def test_a_content_that_cannot_be_stored_leaves_nothing_half_written(snapshots, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ConfigError) as raised:
        snapshots.save(b"one")
    assert str(raised.value) == f"a snapshot cannot be stored in {snapshots.folder!r}: No space left on device"
    assert stored_in(snapshots) == {}


def test_a_content_that_is_missing_damaged_or_misnamed_is_not_given(snapshots):
    with pytest.raises(ConfigError) as raised:
        snapshots.load(ONE)
    assert str(raised.value) == (
        f"the content {ONE[:12]} is not in the snapshots of {snapshots.folder!r}: it was removed, or the tools stored "
        "it in another folder; name that one: SnapshotFolder(…), or --snapshots on the command line"
    )
    snapshots.save(b"one")
    Path(snapshots.folder, ONE[:2], ONE[2:]).write_bytes(b"other")
    with pytest.raises(ConfigError) as raised:
        snapshots.load(ONE)
    assert str(raised.value) == f"the snapshot {ONE[:12]} in {snapshots.folder!r} is damaged, and is not used"
    with pytest.raises(ConfigError) as raised:
        snapshots.load("../../etc/passwd")
    assert str(raised.value) == "'../../etc/passwd' is no digest of a snapshot"


def test_a_link_among_the_contents_is_judged_by_its_own_time(snapshots):
    snapshots.save(b"one")
    Path(snapshots.folder, "link").symlink_to("missing")
    assert snapshots.has_stored_before(10**11)
    assert snapshots.prune(0, now=10**11) == 2
    assert os.listdir(snapshots.folder) == [ONE[:2]]
