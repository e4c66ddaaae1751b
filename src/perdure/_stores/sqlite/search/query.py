"""Full-text search in an SQLite store. The index is updated after the log, and rebuilt if they do not match.

The log never waits for the index. How far a session is indexed is recorded in the log, after the index is synced; so
entries that are indexed twice are noticed, and none is left out. Log and index have a stamp, which changes whenever
something is removed from the log: when the two differ, because a process died in between or a file was replaced, the
index is rebuilt, by one of the processes that notice it.
"""

import json
import logging
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

import apsw

from perdure._core.log.store import Hit
from perdure._core.values.error import ConfigError, StoreError
from perdure._stores.checks import ROLES, SearchRequest, split_query
from perdure._stores.sqlite.database import to_store_error
from perdure._stores.sqlite.log import EntryRange
from perdure._stores.sqlite.write.jobs import Job
from perdure._stores.texts import SearchTerms, make_snippet

from .index import DAMAGE, SearchIndex, StaleIndexError, StampMismatchError
from .log_reader import MAX_SEQ, LogReaderForSearch, SearchRange, SubmitJob

T = TypeVar("T")

BATCH_ENTRIES: Final = 500
"""The number of entries that are indexed in one transaction in the background, so that searches can run in between."""
CATCH_UP_ENTRIES: Final = 2000
"""The number of entries per transaction when a search waits for the rest to be indexed: each transaction is synced."""
SESSIONS_AT_ONCE: Final = 50
"""The number of sessions whose entries are read with one query."""
MAX_MISMATCHES: Final = 10
"""How often log and index may differ during one task, because other processes remove texts or rebuild the index."""
MAX_DAMAGES: Final = 4
"""How often an index may be found to be damaged during one task: each process that finds it so may clear the file."""
CHARACTERS_PER_ENTRY: Final = 2000
"""If entries are longer than this on average, fewer of them are indexed in one transaction."""

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

_LEFT_LOG: Final = "; the text has left the log, and leaves the index at its next use"
_QUERY_WORD: Final = re.compile(r'("(?:[^"]|"")*"|[^\s"(){}:^+*-]+)(\s*\*)?')
_OPERATORS: Final = frozenset({"AND", "OR", "NOT", "NEAR"})

_log = logging.getLogger("perdure.stores")


class _FoundRow(NamedTuple):
    """A row of the search query."""

    session: int
    seq: int
    role: int
    at: float
    checksum: int
    score: float


class LogSearch:
    """Full-text search of one SQLite store. Use it on one thread only."""

    def __init__(self, path: str, vfs: str | None, submit: SubmitJob) -> None:
        self._index = SearchIndex(path)
        self._source = LogReaderForSearch(path, vfs, submit)
        self.is_rewriting_due = False
        """True if removed texts may be left in the file of the index: `index_batch` finishes that."""

    def search(self, request: SearchRequest) -> list[Hit]:
        """Index all entries that are not indexed yet, then return the hits."""
        return self._with_rebuild(lambda: self._search(request))

    def index_batch(self) -> int:
        """Index a limited number of entries that are not indexed yet; return how many. If there are none, finish what a
        process that has died has not rewritten.
        """
        return self._with_rebuild(self._index_or_rewrite)

    def run_erasing_job(self, session_id: str, seq: int | None, job: Job[T]) -> T:
        """Run a job that deletes a session or redacts its entry `seq`, and remove the text from the index too.

        No byte of it is left in the index. If that cannot be done otherwise, the index is emptied.
        """
        self._index.close_if_replaced()
        self._source.close_if_replaced()
        done: list[T] = []
        try:
            try:
                self._erase_from_matching_index(session_id, seq, job, done)
            except (*DAMAGE, StaleIndexError) as error:
                if not done:
                    self._index.check_writable()
                    done.append(self._source.run_removal(job)[0])
                self._rebuild_index(error)
        except (apsw.Error, StaleIndexError) as error:
            raise self._build_error(error, _LEFT_LOG if done else "") from error
        return done[0]

    def vacuum(self) -> None:
        """Shrink the index file, if there is one, to its minimum size."""
        if self._index.exists:
            self._with_rebuild(self._index.vacuum)

    def close(self) -> None:
        """Close the files."""
        self._index.close()
        self._source.close()

    # -- keeping up ----------------------------------------------------------------------------------------------------

    def _with_rebuild(self, work: Callable[[], T]) -> T:
        """Run a function that uses the index. A damaged or outdated index is rebuilt first."""
        self._index.close_if_replaced()
        self._source.close_if_replaced()
        try:
            return self._try_with_rebuilds(work)
        except (apsw.Error, StaleIndexError) as error:
            raise self._build_error(error) from error

    def _build_error(self, error: apsw.Error | StaleIndexError, more: str = "") -> StoreError:
        path = self._index.path
        if isinstance(error, StaleIndexError):
            text = (
                f"the search index {path!r} was made anew, and still does not match the log ({error}): try again; if "
            )
            return StoreError(f"{text}that does not help, delete this file alone, and it is made once more{more}")
        told = to_store_error(error, path)
        return type(told)(f"{told}{more}") if more else told

    def _try_with_rebuilds(self, work: Callable[[], T]) -> T:
        """Try until the index matches the log. Other processes may change the log, and rebuild the index, meanwhile."""
        damages = 0
        for _ in range(MAX_MISMATCHES):
            stamp = self._source.read_stamp()
            try:
                return work()
            except StampMismatchError as error:
                self._rebuild_index(error)
            except (*DAMAGE, StaleIndexError) as error:
                damages += 1
                if damages == MAX_DAMAGES:
                    raise
                self._rebuild_index(error, damaged_stamp=stamp)
        return work()

    def _rebuild_index(self, error: Exception, damaged_stamp: int = 0) -> None:
        """Empty the index after this error if it does not match the log, or has the stamp of a damaged one."""
        self._index.close_if_replaced()
        self._index.check_writable()
        # Perhaps another process has cleared the file; then a new connection creates the tables.
        for repair in (self._index.drop_connection, *[self._index.clear] * MAX_DAMAGES):
            try:
                return self._empty_index(error, damaged_stamp)
            except (*DAMAGE, StaleIndexError):
                repair()
        return self._empty_index(error, damaged_stamp)

    def _empty_index(self, error: Exception, damaged_stamp: int) -> None:
        """Empty the index in a transaction, and record that nothing is indexed, unless another process has done so."""
        with self._index.write_transaction():
            found, before = self._index.stamp, self._source.read_stamp()
            if before not in {0, damaged_stamp} and abs(found) == before:
                return
            self._index.recreate_tables()
            stamp = self._source.reset_indexed()
            self._index.stamp = -stamp
        if before:  # it is not a new one
            _log.warning("the search index %r is made anew: %s", self._index.path, error)
        self._finish_rewriting(stamp)

    def _finish_rewriting(self, stamp: int, *, has_free_pages: bool = True) -> None:
        """Rewrite the file of an index without removed texts; if it has the negative of this stamp, make that positive.

        Without `has_free_pages` removed texts are only in the write-ahead log.
        """
        if has_free_pages:
            self._index.rewrite_pages()
        self._index.truncate_wal()
        with self._index.write_transaction():
            if self._index.stamp == -stamp:
                self._index.stamp = stamp

    def _check_stamps(self) -> int:
        """Return the stamp of log and index. Raises `StampMismatchError` if they differ."""
        stamp = self._source.read_stamp()
        self._compare_stamp(stamp)
        return stamp

    def _compare_stamp(self, stamp: int) -> None:
        """Raise `StampMismatchError` if the index has another stamp than the log, which has this one."""
        found = self._index.stamp
        self.is_rewriting_due = found < 0
        if not stamp or abs(found) != stamp:
            raise StampMismatchError("it does not belong to the log as it is now")

    def _catch_up(self) -> int:
        """Index all entries that were in the log when this method began; return the stamp that it had."""
        stamp, backlog = self._source.read_stamp_and_backlog()
        self._compare_stamp(stamp)
        while backlog > 0 and (done := self._index_batch(CATCH_UP_ENTRIES)):
            backlog -= done
        return stamp

    def _index_or_rewrite(self) -> int:
        entries = self._index_batch(BATCH_ENTRIES)
        if not entries and self.is_rewriting_due and self._index.is_writable:
            self._finish_rewriting(abs(self._index.stamp))
        return entries

    def _index_batch(self, most: int) -> int:
        if not self._source.find_unindexed(1):
            self._check_stamps()
            return 0
        upto: list[tuple[int, int]] = []
        entries = characters = 0
        with self._index.write_transaction(), self._source.read_transaction():
            stamp = self._check_stamps()
            due = deque(self._source.find_unindexed(most))
            while due and entries < most and characters < most * CHARACTERS_PER_ENTRY:
                ranges: list[EntryRange] = []
                while due and entries < most and len(ranges) < SESSIONS_AT_ONCE:
                    key, after, head = due.popleft()
                    last = min(head, after + most - entries)
                    ranges.append(EntryRange(key, after, last))
                    entries += last - after
                docs = self._source.read_texts(*ranges)
                self._index.add(docs)
                upto += [(each.session, each.upto) for each in ranges]
                characters += sum([len(doc.text) for doc in docs])
        self._source.record_indexed(stamp, upto)
        return entries

    # -- taking out ----------------------------------------------------------------------------------------------------

    def _erase_from_matching_index(self, session_id: str, seq: int | None, job: Job[T], done: list[T]) -> None:
        for _ in range(MAX_MISMATCHES):
            try:
                return self._erase(session_id, seq, job, done)
            except StampMismatchError as error:  # nothing is done yet, and another process may be rebuilding the index
                self._rebuild_index(error)
        return self._erase(session_id, seq, job, done)

    def _erase(self, session_id: str, seq: int | None, job: Job[T], done: list[T]) -> None:
        if not self._index.exists and not self._source.read_stamp():
            result, stamp = self._source.run_removal(job)
            done.append(result)
            if stamp:
                raise StaleIndexError("it was begun while something left the log")
            return
        with self._index.write_transaction():
            self._check_stamps()
            has_free_pages = self.is_rewriting_due
            before = self._indexed_texts(self._source.find_removable_ranges(session_id, seq))
            result, stamp = self._source.run_removal(job)
            done.append(result)
            gone = [
                (*place, text) for place, text in before.items() if self._source.read_text_and_owner(*place)[0] != text
            ]
            has_free_pages |= self._index.remove(gone)
            for session, number, _ in gone:
                self._index.add(self._source.read_texts(EntryRange(session, number - 1, number)))
            self._index.stamp = -stamp  # until no byte is left of the texts, also if this process dies
        self._finish_rewriting(stamp, has_free_pages=has_free_pages)

    def _indexed_texts(self, entry_ranges: Sequence[tuple[int, int, int]]) -> dict[tuple[int, int], str]:
        """Return the texts of those entries in some ranges that are indexed."""
        found: dict[tuple[int, int], str] = {}
        for session, first, last in entry_ranges:
            places = set(self._index.find_indexed_seqs(session, first, last))
            if places:
                docs = self._source.read_texts(EntryRange(session, min(places) - 1, max(places)))
                found |= {(session, doc.seq): doc.text for doc in docs if doc.seq in places}
                if len(docs) < len(places):
                    raise StaleIndexError(f"some entries of session {session} can be read no more")
        return found

    # -- finding -------------------------------------------------------------------------------------------------------

    def _search(self, request: SearchRequest) -> list[Hit]:
        expression, wanted = self._parse_request(request)
        try:
            return self._find_hits(request, expression, wanted)
        except StaleIndexError:
            # Perhaps another process has just taken something out of log and index: then it is well by now.
            return self._find_hits(request, expression, wanted)

    def _find_hits(self, request: SearchRequest, expression: str, terms: SearchTerms) -> list[Hit]:
        stamp = self._catch_up()
        spans = self._find_ranges(request)
        if spans is not None and not spans:
            return []
        names = {span.session: span.shown_as for span in spans or ()}
        return [self._build_hit(found, names, terms) for found in self._query_rows(stamp, request, expression, spans)]

    def _query_rows(
        self, stamp: int, request: SearchRequest, expression: str, spans: Sequence[SearchRange] | None
    ) -> list[_FoundRow]:
        try:
            with self._index.read_transaction():
                self._compare_stamp(stamp)  # another process may have emptied it since everything was indexed
                return [_FoundRow(*row) for row in self._index.query(*_build_statement(request, expression, spans))]
        except apsw.SQLError as error:
            if request.syntax == "query" and self._is_index_sound():
                raise _query_syntax_error(request.query, error) from error
            raise

    def _parse_request(self, request: SearchRequest) -> tuple[str, SearchTerms]:
        """Build the FTS5 query, and the terms to mark in the hits."""
        if request.syntax == "query":
            return request.query, self._parse_terms(request.query)
        words = {word: self._tokenize(word) for word in split_query(request.query)}
        told = [f'"{word.replace(chr(34), chr(34) * 2)}"' for word, inside in words.items() if inside]
        if not told:
            raise ConfigError(f"there is no word in {request.query!r}, only signs, and these are not indexed")
        return " AND ".join(told), SearchTerms(frozenset(word for inside in words.values() for word in inside))

    def _parse_terms(self, query: str) -> SearchTerms:
        """Return the terms of an FTS5 query, without its operators."""
        words: set[str] = set()
        beginnings: set[str] = set()
        for text, star in _QUERY_WORD.findall(query):
            if text in _OPERATORS:
                continue
            inside = self._tokenize(text)
            words.update(inside)
            if star and inside:
                beginnings.add(inside[-1])
        return SearchTerms(words, tuple(sorted(beginnings)))

    def _tokenize(self, text: str) -> list[str]:
        return [word for _, _, word in self._index.tokenize(text.encode())]

    def _find_ranges(self, request: SearchRequest) -> list[SearchRange] | None:
        """Return the ranges that the search is limited to; `None` if it covers all sessions."""
        if not request.session_id:
            return self._source.ranges_under_prefix(request.prefix) if request.prefix else None
        if not request.session_id.startswith(request.prefix):
            return []
        return self._source.ranges_of_session(request.session_id)

    def _is_index_sound(self) -> bool:
        try:
            self._index.query("SELECT rowid FROM search WHERE search MATCH 'a' LIMIT 1", {})
        except DAMAGE:
            return False
        return True

    def _build_hit(self, found: _FoundRow, names: Mapping[int, str], terms: SearchTerms) -> Hit:
        text, owner = self._source.read_text_and_owner(found.session, found.seq)
        name = names.get(found.session) or owner or self._source.find_shown_session_id(found.session, found.seq)
        if text is None or not name or found.checksum != crc32(text.encode()):
            raise StaleIndexError(f"entry {found.seq} of session {found.session} is not in the log as it was indexed")
        shown = make_snippet(text, terms, self._index.tokenize)
        return Hit(name, found.seq, ROLES[found.role], shown, found.score, found.at)


def _build_statement(
    request: SearchRequest, expression: str, spans: Sequence[SearchRange] | None
) -> tuple[str, dict[str, Any]]:
    """Build the SQL statement and its parameters."""
    values: dict[str, Any] = {"expression": expression, "limit": request.limit, "offset": request.offset}
    conditions: list[str] = []
    if request.role:
        conditions.append("doc.role = :role")
        values["role"] = ROLES.index(request.role)
    if request.since is not None:
        conditions.append("doc.at >= :since")
        values["since"] = request.since
    if request.until is not None:
        conditions.append("doc.at <= :until")
        values["until"] = request.until
    if spans is not None:
        parts = [span for span in spans if span.upto < MAX_SEQ]
        conditions.append(_WITHIN_PARTS if parts else _WITHIN)
        values["whole"] = json.dumps([span.session for span in spans if span.upto == MAX_SEQ])
        values["parts"] = json.dumps([span[:3] for span in parts])
    if not conditions:
        return _FIND.format(order=_ORDER), values
    return _FIND_SOME.format(conditions=" AND ".join(conditions), order=_ORDER), values


def _query_syntax_error(query: str, error: apsw.Error) -> ConfigError:
    reason = str(error).removeprefix("fts5: ")
    return ConfigError(
        f"the query {query!r} is not understood ({reason}): put what is not a plain word between double quotes, "
        'or search for plain words, with syntax="words"'
    )
