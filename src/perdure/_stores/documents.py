"""`SessionDocumentStore`: a store that keeps each session as one document, with functions of yours to load and save it.

    class Bucket:
        async def load(self, session_id: str) -> bytes | None: ...
        async def save(self, session_id: str, document: bytes) -> None: ...
        async def delete(self, session_id: str) -> None: ...

    agent = Agent("anthropic", store=SessionDocumentStore(Bucket()))

Everything else that a store has to do (leases, fences, posts, forks) is done here, in memory. So one process at a time
may use the documents, and each change saves the whole document of its session: for many long sessions, or several
processes, use SQLite or PostgreSQL, or write a store.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import msgspec

from perdure._core.log.codec import decode_entry, encode_entry
from perdure._core.log.store import InterruptedSession, Lease, Post, SessionInfo
from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.error import ConfigError, PerdureError, StoreError, UnsupportedByStore
from perdure._core.values.event import Entry
from perdure._core.values.jsonable import to_jsonable

from .checks import check_session_id
from .memory import MemoryStore, StoredSessionState

FORMAT: Final = 1
"""The newest format of a document; one of a newer format is refused."""


class DocumentBackend(Protocol):
    """Protocol for a host program's storage of sessions as documents: load, save and delete.

    The methods may be plain functions or async ones.

    `list`, if there is one, returns the ids of all sessions. Without it, only sessions that were used in this process
    are listed, and nothing can be redacted.
    """

    def load(self, session_id: str) -> Any:
        """Return the document of a session as it was saved, as bytes; `None` if there is none."""
        ...

    def save(self, session_id: str, document: bytes) -> Any:
        """Store the document of a session in place of the old one, whole or not at all."""
        ...

    def delete(self, session_id: str) -> Any:
        """Delete the document of a session, if there is one."""
        ...


class _Document(msgspec.Struct, omit_defaults=True):
    """The content of a session's document."""

    perdure: int
    """Format of the document."""
    session_id: str
    created_at: float
    fence: int
    parent: str = ""
    at: int = 0
    posts: list[Post] = []
    entries: list[msgspec.Raw] = []


class SessionDocumentStore(MemoryStore):
    """A store whose sessions are documents that your own functions load, save and delete, for one process."""

    def __init__(self, documents: DocumentBackend, *, clock: Clock = SYSTEM_CLOCK) -> None:
        for method in ("load", "save", "delete"):
            if isinstance(documents, type) or not callable(getattr(documents, method, None)):
                raise ConfigError(f"SessionDocumentStore({documents!r}): give an object with load, save and delete")
        super().__init__(clock=clock)
        self._documents = documents
        self._loaded: set[str] = set()
        self._locks: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Lock]] = {}

    # -- one session ---------------------------------------------------------------------------------------------------

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        """Acquire the lease of a session, which is valid in this process only; create the session if it is new."""
        async with self._open(session_id) as save:
            was_driven = session_id in self._sessions and self._sessions[session_id].driven
            lease = await super().acquire(session_id, take_over=take_over)
            try:
                await save()  # the fence has to grow, also after a restart
            except BaseException:
                if session_id in self._sessions:
                    self._sessions[session_id].driven = was_driven
                raise
            return lease

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Append entries to a session's log, and save its document."""
        async with self._open(lease.session_id) as save:
            super().append_now(lease, entries, sync=sync)
            await save()

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:  # noqa: ARG002 - it always waits
        """Return False: an append is never immediate here, as the document has to be saved."""
        return False

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """Return the entries numbered above `after`, in order; an empty list if there is no such session."""
        async with self._open(session_id):
            return await super().read(session_id, after=after)

    async def post(self, session_id: str, post: Post) -> bool:
        """Store a post (a message to a session), and save the document."""
        async with self._open(session_id) as save:
            if not await super().post(session_id, post):
                return False
            await save()
            return True

    async def posts(self, session_id: str) -> list[Post]:
        """Return the posts (messages to a session) that the process running it has not taken yet, oldest first."""
        async with self._open(session_id):
            return await super().posts(session_id)

    async def info(self, session_id: str) -> SessionInfo | None:
        """Return title, times and entry count of a session; `None` if it does not exist or has no entries."""
        async with self._open(session_id):
            return await super().info(session_id)

    async def delete(self, session_id: str) -> None:
        """Delete a session and its document. Raises `SessionBusy` while it is being driven."""
        await self._load_all()
        async with self._open(session_id):
            forks = [name for name, each in self._sessions.items() if each.parent == session_id]
            await super().delete(session_id)
            await self._call(self._documents.delete, session_id)
        for name in forks:  # they do not name it any more
            async with self._open(name) as save:
                await save()

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Create a session that starts with the first `at` entries of another, and save it as a separate document."""
        check_session_id(new_id)
        async with self._open(session_id):
            pass  # loaded
        async with self._open(new_id) as save:
            await super().fork(session_id, new_id, at=at)
            await save()

    # -- all sessions --------------------------------------------------------------------------------------------------

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Replace an entry in its session and all forks. Raises `UnsupportedByStore` if documents have no `list`."""
        if not callable(getattr(self._documents, "list", None)):
            raise UnsupportedByStore(
                "without list() the forks of a session are not known: give the documents a list method"
            )
        await self._load_all()
        log = self._sessions[lease.session_id].entries if lease.session_id in self._sessions else []
        old = log[entry.seq - 1] if 0 < entry.seq <= len(log) else None
        self._share_entry(old)
        await super().redact(lease, entry)
        for name, session in list(self._sessions.items()):
            if len(session.entries) >= entry.seq and session.entries[entry.seq - 1] is entry:
                async with self._open(name) as save:
                    await save()

    def _share_entry(self, old: Entry | None) -> None:
        """Make sessions that were loaded separately share the entry that is to be redacted, as forks do."""
        if old is not None:
            for session in self._sessions.values():
                if len(session.entries) >= old.seq and session.entries[old.seq - 1] == old:
                    session.entries[old.seq - 1] = old

    async def list_interrupted(
        self, *, prefix: str = "", include_posts: bool = False, now: float | None = None
    ) -> list[InterruptedSession]:
        """Return the sessions whose last run can continue and that are not driven, the longest idle first."""
        await self._load_all()
        return await super().list_interrupted(prefix=prefix, include_posts=include_posts, now=now)

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Return a page of non-empty sessions whose id begins with `prefix`, the most recently used first."""
        await self._load_all()
        return await super().list(prefix=prefix, limit=limit, offset=offset)

    # -- documents -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _open(self, session_id: str) -> AsyncGenerator["Callable[[], Any]"]:
        """Async context manager: load a session if needed, lock it, and yield a function that saves it.

        If saving fails, the session is as it was before: nothing is in memory that is not in the document.
        """
        check_session_id(session_id)
        async with self._get_lock(session_id):
            await self._load(session_id)
            session = self._sessions.get(session_id)
            before = None if session is None else session.copy_state()

            async def save() -> None:
                try:
                    await self._call(self._documents.save, session_id, self._encode(session_id))
                except BaseException:
                    if before is None:
                        self._sessions.pop(session_id, None)
                    else:
                        self._sessions[session_id].restore_state(before)
                    raise

            yield save

    def _get_lock(self, session_id: str) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        found = self._locks.get(session_id)
        if found is None or found[0] is not loop:
            found = self._locks[session_id] = (loop, asyncio.Lock())
        return found[1]

    async def _load(self, session_id: str) -> None:
        if session_id in self._loaded:
            return
        data = await self._call(self._documents.load, session_id)
        if data is not None:
            self._decode(session_id, data)
        self._loaded.add(session_id)

    async def _load_all(self) -> None:
        """Load all sessions that the documents list, if they support `list`."""
        list_ids = getattr(self._documents, "list", None)
        if not callable(list_ids):
            return
        found: Iterable[str] = await self._call(list_ids)
        for session_id in tuple(found):
            async with self._open(session_id):
                pass

    def _encode(self, session_id: str) -> bytes:
        session = self._sessions[session_id]
        state = session.copy_state()
        return msgspec.json.encode(
            _Document(
                FORMAT,
                session_id,
                state.created_at,
                state.fence,
                state.parent,
                state.at,
                [Post(each.id, each.kind, to_jsonable(each.body), each.at) for each in session.drop_taken_posts()],
                [msgspec.Raw(encode_entry(entry)) for entry in state.entries],
            )
        )

    def _decode(self, session_id: str, data: Any) -> None:
        try:
            document = msgspec.json.decode(data, type=_Document)
            entries = [decode_entry(bytes(raw)) for raw in document.entries]
        except (msgspec.MsgspecError, TypeError) as error:
            raise StoreError(f"the document of session {session_id!r} cannot be read: {error}") from error
        if document.perdure > FORMAT or document.session_id != session_id:
            raise StoreError(
                f"the document of session {session_id!r} is of session {document.session_id!r}, in format "
                f"{document.perdure}; this version reads format {FORMAT}"
            )
        state = StoredSessionState(
            entries, {each.id: each for each in document.posts}, document.fence, document.created_at
        )
        state.parent, state.at = document.parent, document.at
        self._get_or_create_session(session_id).restore_state(state)

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call one of the documents' functions, on a thread unless async. Its errors are raised as `StoreError`."""
        try:
            if inspect.iscoroutinefunction(function):
                return await function(*arguments)
            result = await asyncio.to_thread(function, *arguments)
            return await result if inspect.isawaitable(result) else result
        except PerdureError:
            raise
        except Exception as error:
            raise StoreError(f"the documents failed: {type(error).__name__}: {error}") from error
