"""Events: everything that happens in a run, for whoever shows or records it.

    from perdure.events import TextDelta, ToolFinished

`Entry` is an event with its place in the log. Their order is described in `docs/concepts/events.md`.
"""

from ._facade import export

NAMES_BY_MODULE = {
    "._core.buffer": ("Buffer", "BufferStats", "OverflowPolicy", "PushReport", "PushResult"),
    "._core.values.engine_event": ("AnswerReviewed", "AutoContinued", "GuardrailTripped", "LimitReached", "PlanMade"),
    "._core.values.event": (
        "CancelRequested",
        "CitationAdded",
        "Compacted",
        "CompactionStarted",
        "Custom",
        "EVENTS",
        "EntriesLost",
        "Entry",
        "ErrorRaised",
        "FailedOver",
        "GrantRevoked",
        "HookInvoked",
        "InboxAdded",
        "InboxResolved",
        "Lagged",
        "MessageAdded",
        "ModelEvent",
        "ModelReplied",
        "ModelRequested",
        "PermissionDecided",
        "PostTaken",
        "ReplyDiscarded",
        "ReplyFinished",
        "RetryScheduled",
        "RunEnded",
        "RunResumed",
        "RunStarted",
        "RunWaiting",
        "SessionConfigured",
        "SessionImported",
        "SessionOpened",
        "SkillLoaded",
        "SubagentFinished",
        "SubagentStarted",
        "TextDelta",
        "ThinkingDelta",
        "ToolCallDelta",
        "ToolFinished",
        "ToolProgress",
        "ToolStarted",
        "ToolsChanged",
        "TurnEnded",
        "TurnStarted",
        "Unknown",
        "UsageReported",
        "ValueKept",
        "ViewChanged",
        "WatcherDropped",
    ),
    "._core.values.event_class": (
        "Event",
        "QuestionAnswered",
        "QuestionAsked",
        "QuestionWithdrawn",
        "ReplayRule",
        "SlotClosed",
        "SlotOpened",
        "SlotUpdated",
    ),
    "._core.watch": ("Fanout", "Watcher"),
}
"""The public names, by the module that defines them."""

__all__, __getattr__, __dir__ = export(__name__, NAMES_BY_MODULE)
