"""Watchers that print, trace and export what happens in runs, for users who watch and debug."""

from ._facade import export

NAMES_BY_MODULE = {
    "._tools.extensions": ("loop_watchdog",),
    "._tracing.collect.entry": (
        "EntriesMissing",
        "FirstDelta",
        "RawRequest",
        "RawResponseHead",
        "RawResponseLine",
        "RequestSnapshot",
        "TraceEntry",
        "TraceMeta",
        "TraceSource",
    ),
    "._tracing.collect.printing": ("log_tool_calls", "mirror_text", "mirror_tool_calls"),
    "._tracing.collect.tracer": ("AsyncWriter", "Tracer", "WriterStats"),
    "._tracing.collect.watchdog": ("BlockedLoop",),
    "._tracing.export.attributes": ("Conventions",),
    "._tracing.export.otel": ("OtelWatcher",),
    "._tracing.view.curl": ("to_curl",),
    "._tracing.view.timelines": ("DisclosureStep", "TrajectoryStep", "TrajectoryTool"),
    "._tracing.view.trace": ("Trace", "read_trace", "trace_session"),
    "._tracing.view.tree": ("ContextItem", "TraceNotice", "TracedRun", "TracedToolCall", "TracedTurn"),
}
"""The public names, by the module that defines them."""

__all__, __getattr__, __dir__ = export(__name__, NAMES_BY_MODULE)
