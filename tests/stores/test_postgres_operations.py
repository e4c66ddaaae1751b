"""What a PostgreSQL store does with the answers of its server, and with its leases. No server is needed."""

import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec
import psycopg
import pytest

from perdure import ConfigError, SessionBusy, SessionExists, SessionNotFound, StoreError
from perdure._stores.checks import SearchRequest
from perdure._stores.postgres import erasure
from perdure._stores.postgres import operations as store_operations
from perdure._stores.postgres.erasure import ForkResult, TenantForkRequest
from perdure._stores.postgres.leases import ActiveLease, LeaseHolderWithToken, LeaseRenewer
from perdure._stores.postgres.operations import PostgresOperations
from perdure._stores.postgres.rows import EntryRow, ParsedQuery, encode_row
from perdure._stores.postgres.statements import SessionState
from perdure.events import Custom, Entry
from perdure.stores import Conflict, Fenced, Lease, Post, PostgresStore, describe_this_process
from perdure.testing import FakeClock
from tests.doubles import SECONDS

T = TypeVar("T")

LEASE = Lease("s", 4)
LIVING = msgspec.json.encode(describe_this_process(0.0)).decode()
DEAD = msgspec.json.encode(msgspec.structs.replace(describe_this_process(0.0), started="long ago")).decode()
OTHER_DEAD = msgspec.json.encode(msgspec.structs.replace(describe_this_process(1.0), started="long ago")).decode()
CHANGED_HANDS = "session 's' has changed hands since this driver got it: stop, and open it again"


def rows(first: int, count: int = 1, size: int = 1) -> list[EntryRow]:
    return [encode_row(Entry(seq, 1.0, Custom("x" * size), f"e-{seq}")) for seq in range(first, first + count)]


class Answers:
    """What the server answers to each statement, in turn; the last answer is repeated. Notes what it was asked."""

    def __init__(self, **answers: Sequence[Any]) -> None:
        self.answers = {name: [*given] for name, given in answers.items()}
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def answer(_connection: Any, *given: Any, **named: Any) -> Any:
            self.asked.append((name, *given, *named.items()))
            left = self.answers.get(name, [None])
            found = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(found, Exception):
                raise found
            return found

        return answer


class Operations(PostgresOperations):
    """Operations whose server gives the answers that a test has made up."""

    def __init__(self, **answers: Sequence[Any]) -> None:
        self.clock = FakeClock()
        options = {"connections": 1, "lease": 15.0, "patience": 30.0}
        super().__init__("postgresql://box/db", "postgresql://box/db", "t", clock=self.clock, **options)  # type: ignore[arg-type]
        server: Any = Answers(**answers)
        self.server = self.statements = self._erasure = server
        self.patience: list[float | None] = []
        self.deadlines: list[bool] = []

    async def run(
        self,
        work: Callable[[Any], Awaitable[T]],
        *,
        patience: float | None = None,
        has_deadline: bool = True,
    ) -> T:
        self.patience.append(patience)
        self.deadlines.append(has_deadline)
        return await work(None)

    def held(self, head: int = 3) -> ActiveLease:
        """A lease that this process has, on a session with so many entries."""
        return ActiveLease(LEASE, "grip", head, self.clock.monotonic(), is_fork=False)


@pytest.fixture
def operations_with() -> Any:
    made: list[Operations] = []

    def make(**answers: Sequence[Any]) -> Operations:
        made.append(Operations(**answers))
        return made[-1]

    yield make
    for each in made:
        each.leases.remove_all()


# -- acquiring and deleting --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shared", "is_fork"), [(0, False), (1, True), (7, True)])
async def test_a_lease_has_what_the_server_says_of_the_session(
    operations_with: Any, shared: int, is_fork: bool
) -> None:
    operations = operations_with(acquire=[(4, 9, shared)])
    now, sent_at = operations.clock.now(), operations.clock.monotonic()
    held = await operations.acquire("s", "grip", take_over=False)
    assert (held.lease, held.grip, held.head, held.is_fork, held.renewed_at) == (LEASE, "grip", 9, is_fork, sent_at)
    assert (held.is_lost, held.unsynced, held.unsynced_bytes) == (False, [], 0)
    assert operations.leases.get_valid(LEASE) is held
    assert operations.server.asked == [("acquire", "s", "grip", [], now, ("take_over", False))]


async def test_a_session_that_another_gives_up_meanwhile_is_acquired_at_the_next_attempt(operations_with: Any) -> None:
    free = [None, SessionState(3, 2, None), SessionState(3, 2, DEAD)]
    operations = operations_with(acquire=[None, None, None, (4, 9, 0)], find=free)
    await operations.acquire("s", "grip", take_over=True)
    tried = [asked[3] for asked in operations.server.asked if asked[0] == "acquire"]
    assert tried == [[], [], [], [DEAD]]


@pytest.mark.parametrize(
    ("holder", "who"), [(LIVING, str(describe_this_process(0.0))), ("scribble", "another process")]
)
async def test_a_session_that_somebody_drives_is_busy(operations_with: Any, holder: str, who: str) -> None:
    operations = operations_with(find=[SessionState(3, 2, holder)])
    text = f"session 's' is being driven by {who}: end that run, or open another session"
    for work in (operations.acquire("s", "grip", take_over=False), operations.delete("s")):
        with pytest.raises(SessionBusy) as busy:
            await work
        assert str(busy.value) == text
    assert operations.leases.find_unreleased("s") == ()


async def test_a_session_that_changes_hands_all_the_time_is_given_up_after_five_attempts(operations_with: Any) -> None:
    for name in ("acquire", "delete"):
        operations = operations_with(find=[SessionState(3, 2, DEAD), SessionState(3, 3, OTHER_DEAD)])
        work = operations.delete("s") if name == "delete" else operations.acquire("s", "grip", take_over=False)
        with pytest.raises(SessionBusy) as busy:
            await work
        assert str(busy.value) == "session 's' changes hands all the time: try again"
        tried = [asked for asked in operations.server.asked if asked[0] == name]
        assert len(tried) == 5
        assert [next(each for each in asked if isinstance(each, list)) for asked in tried] == [
            [],
            [DEAD],
            *[[OTHER_DEAD]] * 3,
        ]


async def test_a_lease_whose_answer_was_lost_is_known_as_our_own_at_the_next_attempt(operations_with: Any) -> None:
    operations = operations_with(acquire=[StoreError("no answer"), (4, 9, 0)])
    with pytest.raises(StoreError, match="no answer"):
        await operations.acquire("s", "first", take_over=False)
    assert operations.leases.find_unreleased("s") == ["first"]
    await operations.acquire("s", "second", take_over=False)
    assert operations.server.asked[-1][3] == ["first"]
    assert operations.leases.find_unreleased("s") == ()


@pytest.mark.parametrize("is_gone", [True, False])
async def test_what_was_deleted_is_swept_from_the_disk(
    operations_with: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_gone: bool
) -> None:
    async def fail(_connection: Any) -> None:
        raise StoreError("no room")

    monkeypatch.setattr(store_operations, "vacuum_dead_rows", fail)
    await operations_with(delete=[is_gone]).delete("s")
    told = "what was erased in session 's' is still on the disk as a dead row: no room"
    assert caplog.messages == ([told] if is_gone else [])


# -- releasing ---------------------------------------------------------------------------------------------------------


async def test_a_release_that_fails_leaves_leases_that_are_known_as_our_own(operations_with: Any) -> None:
    operations = operations_with(release=[StoreError("no answer")])
    await operations.release([])
    assert operations.server.asked == []
    with pytest.raises(StoreError, match="no answer"):
        await operations.release([operations.held()])
    assert operations.leases.find_unreleased("s") == ["grip"]
    assert operations.patience == [5.0]  # a third of the time that a lease lasts


# -- appending ---------------------------------------------------------------------------------------------------------


async def test_what_was_stored_without_a_sync_is_kept_until_the_next_one(operations_with: Any) -> None:
    operations = operations_with(append=[True])
    held = operations.held()
    await operations.append(held, rows(4, 2), sync=False)
    await operations.append(held, rows(5, 2), sync=False)
    assert (held.head, held.unsynced) == (6, rows(4, 3))
    assert held.unsynced_bytes == sum(len(row.body) for row in rows(4, 3))
    await operations.append(held, rows(7), sync=True)
    assert (held.head, held.unsynced, held.unsynced_bytes) == (7, [], 0)


async def test_an_append_is_synced_once_too_much_is_not_on_the_disk(
    operations_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations = operations_with(append=[True])
    held = operations.held()
    monkeypatch.setattr(store_operations, "UNSYNCED_BYTES", 2 * len(rows(4)[0].body))
    for seq in (4, 5, 6, 7):
        await operations.append(held, rows(seq), sync=False)
    assert [asked[-1] for asked in operations.server.asked] == [("sync", sync) for sync in (False, False, True, False)]


@pytest.mark.parametrize(
    "found", [None, SessionState(3, 5, "grip"), SessionState(3, 4, "another"), SessionState(3, 4, None)]
)
async def test_an_append_to_a_session_that_another_has_loses_the_lease(operations_with: Any, found: Any) -> None:
    operations = operations_with(append=[False], find=[found])
    held = operations.held()
    with pytest.raises(Fenced) as fenced:
        await operations.append(held, rows(4), sync=False)
    assert str(fenced.value) == CHANGED_HANDS
    assert held.is_lost


async def test_rows_that_are_there_already_are_accepted_and_synced_if_asked_for(operations_with: Any) -> None:
    there = [(4, "e-4"), (5, "e-5")]
    for sync in (False, True):
        operations = operations_with(append=[False], find=[SessionState(5, 4, "grip")], read_ids=[there])
        held = operations.held()
        await operations.append(held, rows(4, 2), sync=sync)
        assert held.head == 5
        assert [asked[0] for asked in operations.server.asked] == ["append", "find", "read_ids", *["sync"] * sync]
        assert operations.server.asked[2] == ("read_ids", LEASE, 4, 5)
        assert held.unsynced == ([] if sync else rows(4, 2))


ELSEWHERE = "already holds one of these entries, elsewhere in the log: read it again, and leave that one out"
AT_ITS_END = "ends at entry 5, and entries from 4 on were to be added: read it again, and go on from its end"


@pytest.mark.parametrize(
    ("head", "there", "problem"), [(3, [], ELSEWHERE), (5, [(4, "e-4"), (5, "other")], AT_ITS_END)]
)
async def test_rows_that_do_not_fit_are_a_conflict(operations_with: Any, head: int, there: Any, problem: str) -> None:
    operations = operations_with(append=[False], find=[SessionState(head, 4, "grip")], read_ids=[there])
    held = operations.held()
    with pytest.raises(Conflict) as conflict:
        await operations.append(held, rows(4, 2), sync=False)
    assert str(conflict.value) == f"session 's' {problem}"
    assert not held.is_lost


async def test_rows_without_ids_are_not_taken_for_the_same(operations_with: Any) -> None:
    nameless = [rows(4)[0]._replace(id=None)]
    operations = operations_with(append=[False], find=[SessionState(4, 4, "grip")], read_ids=[[(4, None)]])
    with pytest.raises(Conflict, match="ends at entry 4, and entries from 4 on were to be added"):
        await operations.append(operations.held(), nameless, sync=False)


async def test_rows_that_a_crash_of_the_server_lost_are_stored_again_before_the_new_ones(operations_with: Any) -> None:
    operations = operations_with(append=[True, False, True], find=[SessionState(4, 4, "grip")])
    held = operations.held()
    await operations.append(held, rows(4, 3), sync=False)
    await operations.append(held, rows(7), sync=False)
    assert operations.server.asked[-1] == ("append", held, rows(5, 3), ("sync", True))
    assert (held.head, held.unsynced) == (7, [])


@pytest.mark.parametrize(("lost_to", "stored"), [(2, [True, False, True]), (4, [True, False, False])])
async def test_a_database_that_was_set_back_further_is_not_written_on(
    operations_with: Any, lost_to: int, stored: list[bool]
) -> None:
    operations = operations_with(append=stored, find=[SessionState(lost_to, 4, "grip")])
    held = operations.held()
    await operations.append(held, rows(4, 3), sync=False)
    with pytest.raises(Fenced) as fenced:
        await operations.append(held, rows(7), sync=False)
    assert str(fenced.value) == (
        f"session 's' ends at entry {lost_to}, but entry 6 was stored and acknowledged: the database was set back, or "
        "a standby took over that had not received it. Stop, look what became of the last entries, and open the "
        "session again"
    )
    assert held.is_lost


# -- redacting ---------------------------------------------------------------------------------------------------------


async def test_what_is_not_on_the_disk_is_synced_before_an_entry_is_redacted(
    operations_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sweep(_connection: Any) -> None:
        operations.server.asked.append(("sweep",))

    monkeypatch.setattr(store_operations, "vacuum_dead_rows", sweep)
    operations = operations_with(append=[True], redact=[True])
    held = operations.held()
    await operations.append(held, rows(4), sync=False)
    await operations.clock.advance(3.0)
    await operations.redact(held, rows(4)[0])
    await operations.redact(held, rows(3)[0])
    assert [(asked[0], asked[-1]) for asked in operations.server.asked[1:]] == [
        ("append", ("sync", True)),
        ("redact", rows(4)[0]),
        ("sweep", "sweep"),
        ("redact", rows(3)[0]),
        ("sweep", "sweep"),
    ]
    assert (held.unsynced, held.renewed_at) == ([], operations.clock.monotonic())


async def test_an_entry_that_cannot_be_redacted_is_told_with_the_reason(operations_with: Any) -> None:
    operations = operations_with(redact=[False, None])
    held = operations.held()
    with pytest.raises(Conflict) as conflict:
        await operations.redact(held, rows(9)[0])
    assert str(conflict.value) == "session 's' has no entry numbered 9: read it again, and redact one it has"
    assert not held.is_lost
    with pytest.raises(Fenced) as fenced:
        await operations.redact(held, rows(1)[0])
    assert str(fenced.value) == CHANGED_HANDS
    assert held.is_lost


# -- forking -----------------------------------------------------------------------------------------------------------


MISSING = SessionNotFound("there is no session 's' to fork: list() shows which there are")
TAKEN = SessionExists("there is a session 'new' already: fork 's' to another id")


def cannot_be_forked(at: Any) -> ConfigError:
    return ConfigError(f"session 's' cannot be forked at={at!r}: pass a number from 1 to 3, or leave it out")


@pytest.mark.parametrize(
    ("head", "at", "error"),
    [
        (0, None, MISSING),
        (3, None, TAKEN),
        (3, 3, TAKEN),
        *[(3, at, cannot_be_forked(at)) for at in (0, 4, -1, True, 1.0, 2**63)],
    ],
)
async def test_a_fork_that_cannot_be_made_is_told_with_the_reason(
    operations_with: Any, monkeypatch: pytest.MonkeyPatch, head: int, at: Any, error: Exception
) -> None:
    asked: list[TenantForkRequest] = []

    async def refuse(_connection: Any, request: TenantForkRequest) -> ForkResult:
        asked.append(request)
        return ForkResult(head, is_made=False)

    monkeypatch.setattr(store_operations, "create_fork", refuse)
    with pytest.raises(type(error)) as refused:
        await operations_with(find=[SessionState(2, 1, None)]).fork("s", "new", at, "token")
    assert str(refused.value) == str(error)
    assert len(asked) == 1
    fits = at is None or (type(at) is int and 0 < at < 2**63)
    assert (asked[0].tenant, asked[0].session_id, asked[0].new_id, asked[0].at) == ("t", "s", "new", at if fits else 0)


@pytest.mark.parametrize(
    ("found", "is_made"),
    [
        (SessionState(0, 1, DEAD), True),
        (SessionState(0, 1, LIVING), False),
        (SessionState(0, 1, None), False),
        (SessionState(1, 1, DEAD), False),
        (None, False),
    ],
)
async def test_a_fork_takes_an_empty_session_of_a_dead_process_and_no_other(
    operations_with: Any, monkeypatch: pytest.MonkeyPatch, found: Any, is_made: bool
) -> None:
    asked: list[Sequence[str]] = []

    async def make_if_free(_connection: Any, request: TenantForkRequest) -> ForkResult:
        asked.append(request.dead_holders)
        return ForkResult(3, is_made=list(request.dead_holders) == [DEAD])

    monkeypatch.setattr(store_operations, "create_fork", make_if_free)
    operations = operations_with(find=[found])
    if is_made:
        await operations.fork("s", "new", None, "token")
    else:
        with pytest.raises(SessionExists):
            await operations.fork("s", "new", None, "token")
    assert len(asked) == 1 + is_made
    assert operations.server.asked == [("find", "new")]


# -- leases ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def leases(clock: FakeClock) -> Any:
    leases = LeaseRenewer({}, "t", 15.0, clock)
    yield leases
    leases.remove_all()


def a_lease(clock: FakeClock, name: str = "s", fence: int = 4) -> ActiveLease:
    return ActiveLease(Lease(name, fence), f"grip-{name}", 3, clock.monotonic(), is_fork=False)


async def test_a_lease_is_valid_for_two_thirds_of_its_time(clock: FakeClock, leases: LeaseRenewer) -> None:
    held = a_lease(clock)
    leases.add(held)
    await clock.advance(10.0)
    assert leases.get_valid(LEASE) is held
    await clock.advance(0.1)
    with pytest.raises(Fenced) as fenced:
        leases.get_valid(LEASE)
    assert str(fenced.value) == (
        "the lease of session 's' could not be renewed for 10.1 s, and another driver may have taken it: stop, and "
        "open it again"
    )
    held.renewed_at = clock.monotonic()
    with pytest.raises(Fenced) as fenced:  # a lost lease stays lost
        leases.get_valid(LEASE)
    assert str(fenced.value) == CHANGED_HANDS


def test_a_lease_that_was_removed_is_valid_no_more(clock: FakeClock, leases: LeaseRenewer) -> None:
    held, other = a_lease(clock), a_lease(clock, "other")
    leases.add(held)
    leases.add(other)
    assert leases.remove(Lease("s", 3)) is None
    assert leases.remove(LEASE) is held
    assert leases.remove(LEASE) is None
    with pytest.raises(Fenced):
        leases.get_valid(LEASE)
    assert leases.remove_all() == [other]
    assert leases.remove_all() == []


def test_a_renewal_is_never_recorded_as_older_than_it_was(clock: FakeClock) -> None:
    held = a_lease(clock)
    held.renewed_at = 50.0
    held.record_stored(rows(4), sync=False, sent_at=40.0)
    held.record_synced(sent_at=45.0)
    assert held.renewed_at == 50.0
    held.record_synced(sent_at=60.0)
    assert held.renewed_at == 60.0
    held.record_stored(rows(2), sync=False, sent_at=70.0)
    assert (held.renewed_at, held.head, held.unsynced) == (70.0, 4, [])


def test_of_the_leases_that_were_left_behind_the_last_sixteen_are_remembered(leases: LeaseRenewer) -> None:
    for number in range(18):
        leases.add_unreleased("s", f"{number}")
    leases.add_unreleased("t", "one")
    assert leases.find_unreleased("s") == [f"{number}" for number in range(2, 18)]
    leases.forget_unreleased("s")
    leases.forget_unreleased("s")
    assert (leases.find_unreleased("s"), leases.find_unreleased("t")) == ((), ["one"])


class Line:
    """A connection on which leases are renewed: it answers with the rows that a test gives."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [*answers]
        self.asked: list[Any] = []
        self.is_closed = False

    def execute(self, _statement: str, values: Any) -> "Line":
        self.asked.append(values)
        self.answer = self.answers.pop(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self

    def fetchall(self) -> Any:
        return self.answer

    def close(self) -> None:
        self.is_closed = True


async def test_all_leases_are_renewed_at_once_and_those_that_are_not_ours_any_more_are_lost(
    clock: FakeClock, leases: LeaseRenewer
) -> None:
    held = [a_lease(clock, name, fence) for name, fence in (("a", 1), ("b", 2), ("c", 3))]
    await clock.advance(5.0)
    line: Any = Line([("a", 1, "off"), ("b", 9, "off"), ("c", 3, "off")])
    kept: Any = leases._renew(line, held)
    assert kept is line
    assert line.asked == [("t", ["a", "b", "c"], [1, 2, 3], ["grip-a", "grip-b", "grip-c"], 15.0)]
    assert [each.is_lost for each in held] == [False, True, False]
    now = clock.monotonic()
    assert [each.renewed_at for each in held] == [now, now - 5.0, now]
    assert not line.is_closed


def test_a_connection_on_which_no_lease_could_be_renewed_is_closed(
    clock: FakeClock, leases: LeaseRenewer, caplog: pytest.LogCaptureFixture
) -> None:
    held = [a_lease(clock), a_lease(clock, "t")]
    line: Any = Line(psycopg.OperationalError("no\nanswer"))
    assert leases._renew(line, held) is None
    assert line.is_closed
    assert [each.is_lost for each in held] == [False, False]
    assert caplog.messages == ["2 leases could not be renewed, which will be tried again: no answer"]


def test_the_thread_that_renews_leases_tries_again_sooner_after_a_failure_and_closes_its_connection(
    clock: FakeClock, leases: LeaseRenewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = a_lease(clock, "lost")
    lost.is_lost = True
    held = a_lease(clock)
    leases._held = {each.lease: each for each in (held, lost)}
    lines: list[Any] = [Line(psycopg.OperationalError("no answer")), Line([("s", 4, "off")], [("s", 4, "off")])]
    made = [*lines]
    monkeypatch.setattr(leases, "_connect", lambda: made.pop(0))
    pauses: list[float] = []

    class Turns(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            pauses.append(timeout)
            return len(pauses) > 3

    leases._renew_until(Turns())
    assert pauses == [5.0, 1.0, 5.0, 5.0]
    assert [line.is_closed for line in lines] == [True, True]
    assert lines[1].asked == [("t", ["s"], [4], ["grip-s"], 15.0)] * 2


def test_the_thread_ends_with_the_last_lease_and_begins_again_with_the_next(clock: FakeClock) -> None:
    leases = LeaseRenewer({}, "t", 0.003, clock)
    others = set(threading.enumerate())

    def threads() -> list[threading.Thread]:
        return [each for each in set(threading.enumerate()) - others if each.name == "perdure-leases"]

    held = a_lease(clock)
    held.is_lost = True  # nothing is to be renewed
    for _ in range(2):
        leases.add(held)
        leases.add(held)
        (thread,) = threads()
        assert thread.daemon
        leases.remove(LEASE)
        thread.join(SECONDS)
        assert not thread.is_alive()
        assert leases._end_of_thread is None
    leases.add(held)
    (thread,) = threads()
    assert leases.remove_all() == [held]
    thread.join(SECONDS)
    assert threads() == []


# -- who has a store ---------------------------------------------------------------------------------------------------


def test_a_holder_is_this_process_with_a_token_of_its_own(operations_with: Any) -> None:
    operations = operations_with()
    one, other = (msgspec.json.decode(operations.new_holder_json(), type=LeaseHolderWithToken) for _ in range(2))
    assert one.is_this_process
    assert one.since == operations.clock.now()
    assert one.token != other.token
    assert operations.new_token() != operations.new_token()


def test_the_identity_of_a_store_has_no_secrets() -> None:
    store = PostgresStore("postgresql://me:secret@box/work", tenant="acme")
    assert store.identity == "postgresql://box/work#acme"
    assert store.locate_session("s") == (("postgres", "postgresql://me:secret@box/work", "acme"), "s")


async def test_the_work_of_other_modules_is_run_with_the_tenant_and_a_vacuum_as_long_as_it_takes(
    operations_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def note(name: str) -> Callable[..., Awaitable[Any]]:
        async def work(_connection: Any, *given: Any, **named: Any) -> Any:
            asked.append((name, *given, *named.items()))
            return [name]

        return work

    monkeypatch.setattr(erasure, "measure_sizes", note("size"))
    monkeypatch.setattr(erasure, "vacuum_tables", note("vacuum"))
    monkeypatch.setattr(store_operations, "search_entries", note("search"))
    operations = operations_with()
    monkeypatch.setattr(operations.mailbox, "add", note("post"))
    assert await operations.size() == ["size"]
    await operations.vacuum()
    request = SearchRequest("rain")
    assert await operations.search(request) == ["search"]
    assert await operations.search(SearchRequest("?!")) == []
    with pytest.raises(ConfigError, match="there is no word in the query '\\?!'"):
        await operations.search(SearchRequest("?!", syntax="query"))
    assert await operations.post("s", Post("p", "steer"), "token") == ["post"]
    assert asked == [
        ("size", ("tenant", "t")),
        ("vacuum",),
        ("search", "t", request, ParsedQuery("rain", frozenset({"rain"}))),
        ("post", ("session_id", "s"), ("post", Post("p", "steer")), ("token", "token")),
    ]
    assert operations.deadlines == [True, False, True, True]


async def test_a_lease_that_is_not_ours_is_not_asked_for(operations_with: Any) -> None:
    operations = operations_with(holds=[True, False])
    assert not await operations.holds(LEASE)
    held = operations.held()
    operations.leases.add(held)
    assert [await operations.holds(LEASE), await operations.holds(LEASE)] == [True, False]
    assert operations.server.asked == [("holds", ("held", held))] * 2


async def test_a_forked_child_is_told_to_make_a_store_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"connections": 1, "lease": 15.0, "patience": 30.0, "clock": FakeClock()}
    operations = PostgresOperations("postgresql://box/db", "postgresql://box/db", "t", **options)
    assert not operations.is_inherited
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    assert operations.is_inherited
    with pytest.raises(StoreError) as refused:
        await operations.size()
    assert str(refused.value) == (
        f"the store 'postgresql://box/db' was opened by process {parent}, of which this one, {parent + 1}, is a fork: "
        "make a new store object here"
    )
