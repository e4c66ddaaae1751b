"""Several processes that use one index, and processes that are killed while they do."""

import apsw
import pytest

from perdure._stores.sqlite import database
from perdure._stores.sqlite.search.index import SearchIndex
from tests.seeds import chance as draw_chance
from tests.stores.material import another_connection, child
from tests.stores.search_material import found


def told(process, most: int = 10_000) -> list[tuple[str, str]]:
    """What a child says that it has done."""
    lines: list[tuple[str, str]] = []
    while len(lines) < most and (line := process.stdout.readline()) not in {"done\n", ""}:
        what, session_id = line.split()
        lines.append((what, session_id))
    return lines


def those(lines, what: str) -> set[str]:
    return {session_id for told, session_id in lines if told == what}


async def test_processes_that_share_an_index_find_what_each_of_them_says(path, store):
    with (
        child("busy", path, "one", 12, programs="search_children") as one,
        child("busy", path, "two", 12, programs="search_children") as two,
    ):
        lines = told(one) + told(two)
        assert (one.wait(60), two.wait(60)) == (0, 0), one.stderr.read() + two.stderr.read()
    left = those(lines, "kept") - those(lines, "deleted")
    assert len(left) == 16
    assert {name for name, _ in await found(store, "said", limit=100)} == left
    with another_connection(f"{path}-search") as connection:
        connection.execute("INSERT INTO search(search) VALUES('integrity-check')")


def test_processes_that_open_a_new_index_at_the_same_moment_wait_for_each_other(path):
    with (
        child("open_new", path, "one", 40, programs="search_children") as one,
        child("open_new", path, "two", 40, programs="search_children") as two,
    ):
        assert (told(one), told(two)) == ([], [])
        assert (one.wait(60), two.wait(60)) == (0, 0), one.stderr.read() + two.stderr.read()


def test_a_new_index_is_opened_once_another_process_has_let_go_of_its_file(path, monkeypatch):
    """SQLite does not wait while it begins a write-ahead log, whatever the timeout."""
    with another_connection(f"{path}-search") as other:
        other.execute("BEGIN IMMEDIATE; CREATE TABLE unfinished(value)")
        waits = []

        def let_go(seconds: float) -> None:
            waits.append(seconds)
            other.execute("ROLLBACK")

        monkeypatch.setattr("time.sleep", let_go)
        index = SearchIndex(str(path))
        assert index.stamp == 0
        index.close()
    assert len(waits) == 1


async def test_an_index_is_emptied_while_another_process_moves_its_log(path, monkeypatch):
    """SQLite does not wait for the other's checkpoint, whatever the timeout."""

    class Busy(apsw.Connection):
        attempts = 0

        def wal_checkpoint(self, *args, **options):
            Busy.attempts += 1
            if Busy.attempts == 1:
                raise apsw.BusyError("BusyError: database is locked")
            return super().wal_checkpoint(*args, **options)

    monkeypatch.setattr(apsw, "Connection", Busy)
    index = SearchIndex(str(path))
    index.clear()
    index.close()
    assert Busy.attempts == 2


def test_work_is_tried_again_until_the_time_is_over_however_long_each_attempt_takes(monkeypatch):
    now = [0.0]
    attempts = []

    def work() -> None:
        attempts.append(now[0])
        now[0] += 20
        raise apsw.BusyError("BusyError: database is locked")

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with pytest.raises(apsw.BusyError):
        database.retry_while_busy(work)
    assert attempts == [0, 20]


@pytest.mark.parametrize("trial", range(4))
async def test_a_process_that_is_killed_leaves_an_index_that_can_be_trusted(path, store, trial):
    chance = draw_chance("search index", trial)
    lines = []
    for name in ("one", "two", "three"):
        with child("busy", path, name, 100, programs="search_children") as process:
            lines += told(process, chance.randrange(1, 12))
            process.kill()
            lines += told(process)
            process.wait(30)
    hits = {name for name, _ in await found(store, "said", limit=100)}
    assert those(lines, "kept") - those(lines, "deleting") <= hits
    assert not those(lines, "deleted") & hits
    assert len(hits - those(lines, "kept")) <= 3  # what each of them was about to tell
