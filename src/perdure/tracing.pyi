# Written by `python -m scripts.exports`, from the table in tracing.py. Not edited by hand.

from ._tools.extensions import loop_watchdog as loop_watchdog
from ._tracing.collect.entry import EntriesMissing as EntriesMissing
from ._tracing.collect.entry import FirstDelta as FirstDelta
from ._tracing.collect.entry import RawRequest as RawRequest
from ._tracing.collect.entry import RawResponseHead as RawResponseHead
from ._tracing.collect.entry import RawResponseLine as RawResponseLine
from ._tracing.collect.entry import RequestSnapshot as RequestSnapshot
from ._tracing.collect.entry import TraceEntry as TraceEntry
from ._tracing.collect.entry import TraceMeta as TraceMeta
from ._tracing.collect.entry import TraceSource as TraceSource
from ._tracing.collect.printing import log_tool_calls as log_tool_calls
from ._tracing.collect.printing import mirror_text as mirror_text
from ._tracing.collect.printing import mirror_tool_calls as mirror_tool_calls
from ._tracing.collect.tracer import AsyncWriter as AsyncWriter
from ._tracing.collect.tracer import Tracer as Tracer
from ._tracing.collect.tracer import WriterStats as WriterStats
from ._tracing.collect.watchdog import BlockedLoop as BlockedLoop
from ._tracing.export.attributes import Conventions as Conventions
from ._tracing.export.otel import OtelWatcher as OtelWatcher
from ._tracing.view.curl import to_curl as to_curl
from ._tracing.view.timelines import DisclosureStep as DisclosureStep
from ._tracing.view.timelines import TrajectoryStep as TrajectoryStep
from ._tracing.view.timelines import TrajectoryTool as TrajectoryTool
from ._tracing.view.trace import Trace as Trace
from ._tracing.view.trace import read_trace as read_trace
from ._tracing.view.trace import trace_session as trace_session
from ._tracing.view.tree import ContextItem as ContextItem
from ._tracing.view.tree import TracedRun as TracedRun
from ._tracing.view.tree import TracedToolCall as TracedToolCall
from ._tracing.view.tree import TracedTurn as TracedTurn
from ._tracing.view.tree import TraceNotice as TraceNotice

__all__ = [
    "AsyncWriter",
    "BlockedLoop",
    "ContextItem",
    "Conventions",
    "DisclosureStep",
    "EntriesMissing",
    "FirstDelta",
    "OtelWatcher",
    "RawRequest",
    "RawResponseHead",
    "RawResponseLine",
    "RequestSnapshot",
    "Trace",
    "TraceEntry",
    "TraceMeta",
    "TraceNotice",
    "TraceSource",
    "TracedRun",
    "TracedToolCall",
    "TracedTurn",
    "Tracer",
    "TrajectoryStep",
    "TrajectoryTool",
    "WriterStats",
    "log_tool_calls",
    "loop_watchdog",
    "mirror_text",
    "mirror_tool_calls",
    "read_trace",
    "to_curl",
    "trace_session",
]
