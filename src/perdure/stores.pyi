# Written by `python -m scripts.exports`, from the table in stores.py. Not edited by hand.

from ._core.log.codec import decode_entry as decode_entry
from ._core.log.codec import encode_entry as encode_entry
from ._core.log.status import LastRunProgress as LastRunProgress
from ._core.log.store import EventReadingStore as EventReadingStore
from ._core.log.store import GroupCommitStore as GroupCommitStore
from ._core.log.store import Hit as Hit
from ._core.log.store import InterruptedSession as InterruptedSession
from ._core.log.store import Lease as Lease
from ._core.log.store import MaintainableStore as MaintainableStore
from ._core.log.store import NonBlockingAppendStore as NonBlockingAppendStore
from ._core.log.store import Post as Post
from ._core.log.store import SearchableStore as SearchableStore
from ._core.log.store import SearchSyntax as SearchSyntax
from ._core.log.store import SessionInfo as SessionInfo
from ._core.log.store import SessionPlace as SessionPlace
from ._core.log.store import Store as Store
from ._core.log.store import StoreSize as StoreSize
from ._core.values.error import Conflict as Conflict
from ._core.values.error import EntryTooNew as EntryTooNew
from ._core.values.error import Fenced as Fenced
from ._core.values.error import UnsupportedByStore as UnsupportedByStore
from ._io.files.snapshots import RemovedSnapshots as RemovedSnapshots
from ._runtime.maintenance import prune as prune
from ._runtime.maintenance import prune_snapshots as prune_snapshots
from ._runtime.maintenance import require_maintainable_store as require_maintainable_store
from ._runtime.maintenance import restore as restore
from ._runtime.transfer import ImportReport as ImportReport
from ._runtime.transfer import export_session as export_session
from ._runtime.transfer import import_session as import_session
from ._runtime.transfer import read_document as read_document
from ._stores import open_store as open_store
from ._stores.checks import check_count as check_count
from ._stores.checks import check_fork as check_fork
from ._stores.checks import check_page as check_page
from ._stores.checks import check_post as check_post
from ._stores.checks import check_session_id as check_session_id
from ._stores.documents import DocumentBackend as DocumentBackend
from ._stores.documents import SessionDocumentStore as SessionDocumentStore
from ._stores.file.store import FileStore as FileStore
from ._stores.lease_holder import LeaseHolderProcess as LeaseHolderProcess
from ._stores.lease_holder import describe_this_process as describe_this_process
from ._stores.lease_holder import parse_holder as parse_holder
from ._stores.memory import MemoryStore as MemoryStore
from ._stores.postgres.store import PostgresStore as PostgresStore
from ._stores.sqlite.store import SqliteStore as SqliteStore
from ._stores.texts import find_given_title as find_given_title
from ._stores.texts import find_message_title as find_message_title
from ._stores.wrappers.listened import Listener as Listener
from ._stores.wrappers.listened import listened as listened
from ._stores.wrappers.namespace import SubagentSessionLocation as SubagentSessionLocation
from ._stores.wrappers.namespace import derive_subagent_session as derive_subagent_session
from ._stores.wrappers.namespace import namespaced as namespaced

__all__ = [
    "Conflict",
    "DocumentBackend",
    "EntryTooNew",
    "EventReadingStore",
    "Fenced",
    "FileStore",
    "GroupCommitStore",
    "Hit",
    "ImportReport",
    "InterruptedSession",
    "LastRunProgress",
    "Lease",
    "LeaseHolderProcess",
    "Listener",
    "MaintainableStore",
    "MemoryStore",
    "NonBlockingAppendStore",
    "Post",
    "PostgresStore",
    "RemovedSnapshots",
    "SearchSyntax",
    "SearchableStore",
    "SessionDocumentStore",
    "SessionInfo",
    "SessionPlace",
    "SqliteStore",
    "Store",
    "StoreSize",
    "SubagentSessionLocation",
    "UnsupportedByStore",
    "check_count",
    "check_fork",
    "check_page",
    "check_post",
    "check_session_id",
    "decode_entry",
    "derive_subagent_session",
    "describe_this_process",
    "encode_entry",
    "export_session",
    "find_given_title",
    "find_message_title",
    "import_session",
    "listened",
    "namespaced",
    "open_store",
    "parse_holder",
    "prune",
    "prune_snapshots",
    "read_document",
    "require_maintainable_store",
    "restore",
]
