"""Perdure: an agent runtime whose sessions survive crashes.

    from perdure import Agent, tool

Names are imported when they are first used; importing the package runs nothing. `__init__.pyi` has the same table for
type checkers: `python -m scripts.exports` writes it.
"""

NAMES_BY_MODULE = {
    "._version": ("__version__",),
    ".config": (
        "BadConfig",
        "Config",
        "load_config",
    ),
    ".context.compaction": ("Compaction",),
    ".context.directives": (
        "Command",
        "CommandContext",
        "CommandFailed",
        "MentionSettings",
        "Rewrite",
        "ShortCircuit",
    ),
    ".context.project_instructions": ("Project",),
    ".context.prompt_version_files": ("Prompts",),
    ".context.agent_role": ("Role",),
    ".context.role_files": ("load_roles",),
    ".context.skills": (
        "Skill",
        "Skills",
        "load_skills",
    ),
    ".context.compaction_strategies": ("keep_recent",),
    ".core.auto_continue": ("auto_continue",),
    ".core.shared_budget": ("Budget",),
    ".core.display_slot": (
        "Askable",
        "Showable",
    ),
    ".core.error": (
        "AllModelsFailed",
        "AuthFailed",
        "BadRequest",
        "ConfigError",
        "Conflict",
        "ContextOverflow",
        "EffectUnknown",
        "EmptyReply",
        "Fenced",
        "InvalidOutput",
        "MiddlewareFailed",
        "ModelError",
        "NotAnswered",
        "EffectNotStarted",
        "LimitExceeded",
        "OutOfBudget",
        "PerdureError",
        "ProviderDown",
        "QuotaSpent",
        "RateLimited",
        "ContentRefused",
        "ReplyCutOff",
        "SessionBusy",
        "SessionExists",
        "SessionNotFound",
        "ShuttingDown",
        "StoreError",
        "ToolError",
        "EntryTooNew",
        "UnsupportedByStore",
        "UsageError",
    ),
    ".core.event": (
        "Entry",
        "Event",
        "QuestionAsked",
    ),
    ".core.inbox": ("InboxItem",),
    ".core.loop": ("react",),
    ".engines": ("register_engine",),
    ".engines.autonomous_engine": ("autonomous",),
    ".engines.chain_of_thought_engine": ("chain_of_thought",),
    ".engines.passthrough_engine": ("passthrough",),
    ".engines.planner_engine": ("planner",),
    ".engines.reflect_engine": ("reflect",),
    ".core.message": (
        "Audio",
        "Citation",
        "Document",
        "Image",
        "Message",
        "Status",
        "StopReason",
        "Text",
        "Thinking",
        "ToolCall",
        "ToolResult",
        "Usage",
        "Video",
        "assistant",
        "tool_message",
        "user",
    ),
    ".core.model": (
        "Model",
        "ModelInfo",
        "OutputSpec",
        "Price",
        "Request",
        "Settings",
    ),
    ".core.outcome": ("Outcome",),
    ".core.permissions": (
        "Explanation",
        "Grant",
        "Grants",
        "Offer",
        "PermissionRequest",
        "Permissions",
        "Verdict",
        "allow",
        "allow_all",
        "ask",
        "deny",
        "deny_all",
        "later",
    ),
    ".core.prompt_cache_misses": ("CacheReport",),
    ".core.run": (
        "Accepted",
        "Retry",
        "Run",
    ),
    ".core.stop_conditions": (
        "Halt",
        "Limits",
        "Nudge",
        "Step",
        "all_of",
        "any_of",
        "max_turns",
        "mistakes",
        "none_of",
        "repeated_calls",
        "when_tool_called",
    ),
    ".core.store": (
        "Hit",
        "InterruptedSession",
        "Post",
        "SessionInfo",
    ),
    ".core.permission_target": (
        "CommandTarget",
        "PathTarget",
        "UrlTarget",
        "command",
        "path",
        "url",
    ),
    ".core.thread_pool": ("set_tool_threads",),
    ".core.tool": (
        "Skip",
        "Tool",
        "ToolOutput",
        "tool",
        "tool_from_schema",
    ),
    ".core.tool_context": ("ToolContext",),
    ".core.toolbox": ("Toolbox",),
    ".core.failover": ("failover",),
    ".core.model_and_tool_wrappers": (
        "after",
        "around",
        "before",
        "compacted",
        "gated",
        "observed",
        "retried",
        "timed",
        "truncated",
    ),
    ".credentials": ("credentialed",),
    ".goals.goal": ("Goal",),
    ".goals.goal_pursuit": (
        "pursue_goal",
        "resume_goal",
    ),
    ".goals.until_engine": ("until",),
    ".grading.evidence": ("Evidence",),
    ".grading.grade": ("Grade",),
    ".models": ("open_model",),
    ".replaying.replay": (
        "Divergence",
        "ReplayReport",
        "replay",
    ),
    ".runtime.agent": ("Agent",),
    ".runtime.class_agent": (
        "agent_of",
        "tools_of",
    ),
    ".mcp.server_settings": ("McpServer",),
    ".mcp_catalogue": (
        "CatalogueEntry",
        "McpCatalogue",
    ),
    ".mcp_extension": ("McpServers",),
    ".memory.embedder": ("Embedder",),
    ".memory.history_processors": (
        "BufferMemory",
        "CompositeMemory",
        "WindowMemory",
    ),
    ".memory.long_term_memory": ("LongTermMemory",),
    ".memory.memory_json_lines": ("MemoryImportReport",),
    ".memory.memory_record": (
        "MemoryHit",
        "MemoryRecord",
        "MemoryScope",
    ),
    ".memory.vector_memory": ("VectorMemory",),
    ".runtime.extension": ("Extension",),
    ".runtime.middleware": ("Middleware",),
    ".runtime.output": ("Output",),
    ".runtime.session": ("Session",),
    ".runtime.stream": ("RunStream",),
    ".runtime.subagents.subagent_tool": (
        "SubagentContext",
        "subagent",
    ),
    ".runtime.subagents.delegation_tools": (
        "delegation",
        "orchestrator",
    ),
    ".imported_session_filter": ("ImportReport",),
    ".session_transfer": (
        "export_session",
        "import_session",
    ),
    ".stores": ("open_store",),
    ".tracing.curl_command": ("to_curl",),
    ".tracing.otel_watcher": ("OtelWatcher",),
    ".tracing.trace": (
        "Trace",
        "read_trace",
        "trace_session",
    ),
    ".tracing.tracer": ("Tracer",),
    ".tracing.printing_watchers": (
        "log_tool_calls",
        "mirror_text",
        "mirror_tool_calls",
    ),
}
"""The public names, by the module that defines them."""

_MODULE_BY_NAME = {name: module for module, names in NAMES_BY_MODULE.items() for name in names}

__all__ = [*sorted(_MODULE_BY_NAME)]  # noqa: PLE0604 # pyright: ignore[reportUnsupportedDunderAll] - the names of the table


def __getattr__(name: str) -> object:
    module = _MODULE_BY_NAME.get(name)
    if module is None:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(module, __name__), name)
    globals()[name] = value  # so that the next use does not call this function
    return value


def __dir__() -> list[str]:
    return __all__
