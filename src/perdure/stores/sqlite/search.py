"""Search in an SQLite store: what the log says, found by way of the index. Above: `search_thread.py`.
Below: `search_file.py`, which has the words, and `search_log.py`, which has the log.

The log never waits for the index. How far a session is indexed is noted in the log, after the index is safe on disk;
so what is indexed twice is noticed, and nothing is left out. Both bear a stamp, which changes whenever something leaves
the log: when the two differ, be it that a process died in between or that somebody put another file in the place of
one, the index is made anew.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

import apsw

from perdure.core.error import ConfigError
from perdure.core.store import Hit
from perdure.stores.search_query import ROLES, Asked, words_of
from perdure.stores.snippet import Wanted, snippet

from .batch import Job
from .file import store_error
from .search_file import DAMAGE, Index, Stale
from .search_log import LAST, Source, Span, Submit

T = TypeVar("T")

BATCH_ENTRIES: Final = 500
"""What is indexed in one transaction in the background, so that who wants to search can do so in between."""
CATCH_UP_ENTRIES: Final = 2000
"""The same when somebody waits for all of it: each transaction is synced."""
CHARACTERS_PER_ENTRY: Final = 2000
"""Where entries are longer, fewer of them are indexed in one transaction."""

# The best first, and of equals the latest. FTS5's rank is lower for what is better.
_ORDER: Final = "ORDER BY search.rank, search.rowid DESC LIMIT :limit OFFSET :offset"
_FIND: Final = """
SELECT session, seq, role, at, checksum, -score FROM (
    SELECT rowid AS place, rank AS score FROM search WHERE search MATCH :expression {order}
) CROSS JOIN doc ON key = place ORDER BY score, key DESC"""
_FIND_SOME: Final = """
SELECT doc.session, doc.seq, doc.role, doc.at, doc.checksum, -search.rank
FROM search CROSS JOIN doc ON doc.key = search.rowid
WHERE search MATCH :expression AND {conditions} {order}"""
_WITHIN: Final = "doc.session IN (SELECT value FROM json_each(:whole))"
_WITHIN_PARTS: Final = """(doc.session IN (SELECT value FROM json_each(:whole)) OR EXISTS (
    SELECT * FROM json_each(:parts)
    WHERE value ->> 0 = doc.session AND doc.seq > value ->> 1 AND doc.seq <= value ->> 2
))"""

_QUERY_WORD: Final = re.compile(r'("(?:[^"]|"")*"|[^\s"(){}:^+*-]+)(\s*\*)?')
_OPERATORS: Final = frozenset({"AND", "OR", "NOT", "NEAR"})

_log = logging.getLogger("perdure.stores")


class _Found(NamedTuple):
    """A row of a query."""

    session: int
    seq: int
    role: int
    at: float
    checksum: int
    score: float


class Search:
    """The index of one file. All of it is for one thread."""

    def __init__(self, path: str, vfs: str | None, submit: Submit) -> None:
        self._index = Index(path)
        self._source = Source(path, vfs, submit)

    def search(self, asked: Asked) -> list[Hit]:
        """What is found, with everything that is in the log by now."""
        return self._guarded(lambda: self._search(asked))

    def batch(self) -> int:
        """Index some of what is not indexed yet; says how many entries these were."""
        return self._guarded(lambda: self._batch(BATCH_ENTRIES))

    def erase(self, session_id: str, seq: int | None, job: Job[T]) -> T:
        """Do a job that takes a session, or one of its entries, out of the log; and take it out of the index.

        No byte of it is left in there. If that cannot be done in another way, the index is emptied.
        """
        self._index.look()
        self._source.look()
        done: list[T] = []
        try:
            try:
                self._erase(session_id, seq, job, done)
            except (*DAMAGE, Stale) as error:
                self._tell(error)
                self._index.reset()
                if not done:
                    done.append(self._source.change(job)[0])
        except apsw.Error as error:
            raise store_error(error, self._index.path) from error
        return done[0]

    def vacuum(self) -> None:
        """Make the file of the index, if there is one, as small as it can be."""
        if self._index.exists:
            self._guarded(self._index.vacuum)

    def close(self) -> None:
        """Let go of the files."""
        self._index.close()
        self._source.close()

    # -- keeping up ----------------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], T]) -> T:
        """Do something with the index. One that is damaged or out of date is made anew first."""
        self._index.look()
        self._source.look()
        try:
            try:
                return work()
            except (*DAMAGE, Stale) as error:
                self._tell(error)
                self._renew()
                return work()
        except apsw.Error as error:
            raise store_error(error, self._index.path) from error

    def _tell(self, error: Exception) -> None:
        is_new = isinstance(error, Stale) and not self._source.stamp()
        if not is_new:
            _log.warning("the search index %r is made anew: %s", self._index.path, error)

    def _renew(self) -> None:
        self._index.reset()
        with self._index.changing():
            self._index.stamp = self._source.renew()

    def _check(self) -> int:
        """The stamp that both have. Raises `Stale` when they differ."""
        stamp = self._source.stamp()
        if not stamp or self._index.stamp != stamp:
            raise Stale("it does not belong to the log as it is now")
        return stamp

    def _catch_up(self) -> None:
        """Index all that was there when this began; more may come all the time."""
        self._check()
        backlog = self._source.backlog()
        while backlog > 0 and (done := self._batch(CATCH_UP_ENTRIES)):
            backlog -= done

    def _batch(self, most: int) -> int:
        if not self._source.behind(1):
            self._check()
            return 0
        upto: list[tuple[int, int]] = []
        entries = characters = 0
        with self._index.changing(), self._source.reading():
            stamp = self._check()
            for key, after, head in self._source.behind(most):
                last = min(head, after + most - entries)
                docs = self._source.docs(key, after, last)
                self._index.add(docs)
                upto.append((key, last))
                entries += last - after
                characters += sum([len(doc.text) for doc in docs])
                if entries >= most or characters >= most * CHARACTERS_PER_ENTRY:
                    break
        self._source.note(stamp, upto)
        return entries

    # -- taking out ----------------------------------------------------------------------------------------------------

    def _erase(self, session_id: str, seq: int | None, job: Job[T], done: list[T]) -> None:
        if not self._index.exists and not self._source.stamp():
            result, stamp = self._source.change(job)
            done.append(result)
            if stamp:
                raise Stale("it was begun while something left the log")
            return
        with self._index.changing():
            self._check()
            before = self._indexed(self._source.at_risk(session_id, seq))
            result, stamp = self._source.change(job)
            done.append(result)
            gone = [(*place, text) for place, text in before.items() if self._source.text(*place) != text]
            self._index.take_out(gone)
            for session, number, _ in gone:
                self._index.add(self._source.docs(session, number - 1, number))
            self._index.stamp = stamp
        self._index.settle()

    def _indexed(self, stretches: Sequence[tuple[int, int, int]]) -> dict[tuple[int, int], str]:
        """The texts of what is indexed of some entries."""
        found: dict[tuple[int, int], str] = {}
        for session, first, last in stretches:
            places = set(self._index.places(session, first, last))
            if places:
                docs = self._source.docs(session, min(places) - 1, max(places))
                found |= {(session, doc.seq): doc.text for doc in docs if doc.seq in places}
                if len(docs) < len(places):
                    raise Stale(f"some entries of session {session} can be read no more")
        return found

    # -- finding -------------------------------------------------------------------------------------------------------

    def _search(self, asked: Asked) -> list[Hit]:
        expression, wanted = self._understood(asked)
        try:
            return self._hits(asked, expression, wanted)
        except Stale:  # perhaps another process has just taken something out of log and index: then it is well by now
            return self._hits(asked, expression, wanted)

    def _hits(self, asked: Asked, expression: str, wanted: Wanted) -> list[Hit]:
        self._catch_up()
        spans = self._spans(asked)
        if spans is not None and not spans:
            return []
        names = {span.session: span.shown_as for span in spans or ()}
        return [self._hit(found, names, wanted) for found in self._found(asked, expression, spans)]

    def _found(self, asked: Asked, expression: str, spans: Sequence[Span] | None) -> list[_Found]:
        try:
            return [_Found(*row) for row in self._index.rows(*_statement(asked, expression, spans))]
        except apsw.SQLError as error:
            if asked.syntax == "query" and self._is_sound():
                raise _misunderstood(asked.query, error) from error
            raise

    def _understood(self, asked: Asked) -> tuple[str, Wanted]:
        """The query for FTS5, and what is to be marked in what is found."""
        if asked.syntax == "query":
            return asked.query, self._wanted(asked.query)
        words = {word: self._words(word) for word in words_of(asked.query)}
        told = [f'"{word.replace(chr(34), chr(34) * 2)}"' for word, inside in words.items() if inside]
        if not told:
            raise ConfigError(f"there is no word in {asked.query!r}, only signs, and these are not indexed")
        return " AND ".join(told), Wanted(frozenset(word for inside in words.values() for word in inside))

    def _wanted(self, query: str) -> Wanted:
        """What a query is about, its operators left aside."""
        words: set[str] = set()
        beginnings: set[str] = set()
        for text, star in _QUERY_WORD.findall(query):
            if text in _OPERATORS:
                continue
            inside = self._words(text)
            words.update(inside)
            if star and inside:
                beginnings.add(inside[-1])
        return Wanted(words, tuple(sorted(beginnings)))

    def _words(self, text: str) -> list[str]:
        return [word for _, _, word in self._index.tokens(text.encode())]

    def _spans(self, asked: Asked) -> list[Span] | None:
        """What the search is narrowed to; `None` when it is about all sessions."""
        if not asked.session_id:
            return self._source.spans_under(asked.prefix) if asked.prefix else None
        if not asked.session_id.startswith(asked.prefix):
            return []
        return self._source.spans_of(asked.session_id)

    def _is_sound(self) -> bool:
        try:
            self._index.rows("SELECT rowid FROM search WHERE search MATCH 'a' LIMIT 1", {})
        except DAMAGE:
            return False
        return True

    def _hit(self, found: _Found, names: Mapping[int, str], wanted: Wanted) -> Hit:
        text = self._source.text(found.session, found.seq)
        name = names.get(found.session) or self._source.name(found.session, found.seq)
        if text is None or not name or found.checksum != crc32(text.encode()):
            raise Stale(f"entry {found.seq} of session {found.session} is not in the log as it was indexed")
        shown = snippet(text, wanted, self._index.tokens)
        return Hit(name, found.seq, ROLES[found.role], shown, found.score, found.at)


def _statement(asked: Asked, expression: str, spans: Sequence[Span] | None) -> tuple[str, dict[str, Any]]:
    """The query, and what is put into it."""
    values: dict[str, Any] = {"expression": expression, "limit": asked.limit, "offset": asked.offset}
    conditions: list[str] = []
    if asked.role:
        conditions.append("doc.role = :role")
        values["role"] = ROLES.index(asked.role)
    if asked.since is not None:
        conditions.append("doc.at >= :since")
        values["since"] = asked.since
    if asked.until is not None:
        conditions.append("doc.at <= :until")
        values["until"] = asked.until
    if spans is not None:
        parts = [span for span in spans if span.upto < LAST]
        conditions.append(_WITHIN_PARTS if parts else _WITHIN)
        values["whole"] = json.dumps([span.session for span in spans if span.upto == LAST])
        values["parts"] = json.dumps([span[:3] for span in parts])
    if not conditions:
        return _FIND.format(order=_ORDER), values
    return _FIND_SOME.format(conditions=" AND ".join(conditions), order=_ORDER), values


def _misunderstood(query: str, error: apsw.Error) -> ConfigError:
    reason = str(error).removeprefix("fts5: ")
    return ConfigError(
        f"the query {query!r} is not understood ({reason}): put what is not a plain word between double quotes, "
        'or search for plain words, with syntax="words"'
    )
