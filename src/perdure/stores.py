"""Stores of sessions: opened by name, maintained, and written by yourself. For operators, and for authors of stores."""

from ._facade import export

NAMES_BY_MODULE = {
    "._core.log.codec": ("decode_entry", "encode_entry"),
    "._core.log.status": ("LastRunProgress",),
    "._core.log.store": (
        "EventReadingStore",
        "GroupCommitStore",
        "Hit",
        "InterruptedSession",
        "Lease",
        "MaintainableStore",
        "NonBlockingAppendStore",
        "Post",
        "SearchSyntax",
        "SearchableStore",
        "SessionInfo",
        "SessionPlace",
        "Store",
        "StoreSize",
    ),
    "._core.values.error": ("Conflict", "EntryTooNew", "Fenced", "UnsupportedByStore"),
    "._io.files.snapshots": ("RemovedSnapshots",),
    "._runtime.maintenance": ("prune", "prune_snapshots", "require_maintainable_store", "restore"),
    "._runtime.transfer": ("ImportReport", "export_session", "import_session", "read_document"),
    "._stores": ("open_store",),
    "._stores.checks": ("check_count", "check_fork", "check_page", "check_post", "check_session_id"),
    "._stores.documents": ("DocumentBackend", "SessionDocumentStore"),
    "._stores.file.store": ("FileStore",),
    "._stores.lease_holder": ("LeaseHolderProcess", "describe_this_process", "parse_holder"),
    "._stores.memory": ("MemoryStore",),
    "._stores.postgres.store": ("PostgresStore",),
    "._stores.sqlite.store": ("SqliteStore",),
    "._stores.texts": ("find_given_title", "find_message_title"),
    "._stores.wrappers.listened": ("Listener", "listened"),
    "._stores.wrappers.namespace": ("SubagentSessionLocation", "derive_subagent_session", "namespaced"),
}
"""The public names, by the module that defines them."""

__all__, __getattr__, __dir__ = export(__name__, NAMES_BY_MODULE)
