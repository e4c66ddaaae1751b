"""What the tables of an SQLite file cost."""

from perdure import user
from perdure._stores.sqlite.search.thread import SearchThread
from perdure.events import Entry, MessageAdded


def said(seq: int, text: str) -> Entry:
    return Entry(seq, 1.0, MessageAdded(user(text)), f"e-{seq}")


async def test_an_append_writes_no_page_of_the_index_of_what_is_to_be_indexed_but_the_first(path, store, monkeypatch):
    monkeypatch.setattr(SearchThread, "signal_append", lambda _: None)  # nothing else writes, however slow this is
    lease = await store.acquire("s")
    await store.append(lease, [said(1, "apples")], sync=False)
    grown = []
    for seq in range(2, 5):
        before = path.with_name("sessions.db-wal").stat().st_size
        await store.append(lease, [said(seq, "pears")], sync=False)
        grown.append((path.with_name("sessions.db-wal").stat().st_size - before) // (4096 + 24))
    assert grown == [3, 3, 3]  # the session, the new row, and where to find it
