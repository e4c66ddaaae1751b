# Written by `python -m scripts.exports`, from the table in events.py. Not edited by hand.

from ._core.buffer import Buffer as Buffer
from ._core.buffer import BufferStats as BufferStats
from ._core.buffer import OverflowPolicy as OverflowPolicy
from ._core.buffer import PushReport as PushReport
from ._core.buffer import PushResult as PushResult
from ._core.values.engine_event import AnswerReviewed as AnswerReviewed
from ._core.values.engine_event import AutoContinued as AutoContinued
from ._core.values.engine_event import GuardrailTripped as GuardrailTripped
from ._core.values.engine_event import LimitReached as LimitReached
from ._core.values.engine_event import PlanMade as PlanMade
from ._core.values.event import EVENTS as EVENTS
from ._core.values.event import CancelRequested as CancelRequested
from ._core.values.event import CitationAdded as CitationAdded
from ._core.values.event import Compacted as Compacted
from ._core.values.event import CompactionStarted as CompactionStarted
from ._core.values.event import Custom as Custom
from ._core.values.event import EntriesLost as EntriesLost
from ._core.values.event import Entry as Entry
from ._core.values.event import ErrorRaised as ErrorRaised
from ._core.values.event import FailedOver as FailedOver
from ._core.values.event import GrantRevoked as GrantRevoked
from ._core.values.event import HookInvoked as HookInvoked
from ._core.values.event import InboxAdded as InboxAdded
from ._core.values.event import InboxResolved as InboxResolved
from ._core.values.event import Lagged as Lagged
from ._core.values.event import MessageAdded as MessageAdded
from ._core.values.event import ModelEvent as ModelEvent
from ._core.values.event import ModelReplied as ModelReplied
from ._core.values.event import ModelRequested as ModelRequested
from ._core.values.event import PermissionDecided as PermissionDecided
from ._core.values.event import PostTaken as PostTaken
from ._core.values.event import ReplyDiscarded as ReplyDiscarded
from ._core.values.event import ReplyFinished as ReplyFinished
from ._core.values.event import RetryScheduled as RetryScheduled
from ._core.values.event import RunEnded as RunEnded
from ._core.values.event import RunResumed as RunResumed
from ._core.values.event import RunStarted as RunStarted
from ._core.values.event import RunWaiting as RunWaiting
from ._core.values.event import SessionConfigured as SessionConfigured
from ._core.values.event import SessionImported as SessionImported
from ._core.values.event import SessionOpened as SessionOpened
from ._core.values.event import SkillLoaded as SkillLoaded
from ._core.values.event import SubagentFinished as SubagentFinished
from ._core.values.event import SubagentStarted as SubagentStarted
from ._core.values.event import TextDelta as TextDelta
from ._core.values.event import ThinkingDelta as ThinkingDelta
from ._core.values.event import ToolCallDelta as ToolCallDelta
from ._core.values.event import ToolFinished as ToolFinished
from ._core.values.event import ToolProgress as ToolProgress
from ._core.values.event import ToolsChanged as ToolsChanged
from ._core.values.event import ToolStarted as ToolStarted
from ._core.values.event import TurnEnded as TurnEnded
from ._core.values.event import TurnStarted as TurnStarted
from ._core.values.event import Unknown as Unknown
from ._core.values.event import UsageReported as UsageReported
from ._core.values.event import ValueKept as ValueKept
from ._core.values.event import ViewChanged as ViewChanged
from ._core.values.event import WatcherDropped as WatcherDropped
from ._core.values.event_class import Event as Event
from ._core.values.event_class import QuestionAnswered as QuestionAnswered
from ._core.values.event_class import QuestionAsked as QuestionAsked
from ._core.values.event_class import QuestionWithdrawn as QuestionWithdrawn
from ._core.values.event_class import ReplayRule as ReplayRule
from ._core.values.event_class import SlotClosed as SlotClosed
from ._core.values.event_class import SlotOpened as SlotOpened
from ._core.values.event_class import SlotUpdated as SlotUpdated
from ._core.watch import Fanout as Fanout
from ._core.watch import Watcher as Watcher

__all__ = [
    "EVENTS",
    "AnswerReviewed",
    "AutoContinued",
    "Buffer",
    "BufferStats",
    "CancelRequested",
    "CitationAdded",
    "Compacted",
    "CompactionStarted",
    "Custom",
    "EntriesLost",
    "Entry",
    "ErrorRaised",
    "Event",
    "FailedOver",
    "Fanout",
    "GrantRevoked",
    "GuardrailTripped",
    "HookInvoked",
    "InboxAdded",
    "InboxResolved",
    "Lagged",
    "LimitReached",
    "MessageAdded",
    "ModelEvent",
    "ModelReplied",
    "ModelRequested",
    "OverflowPolicy",
    "PermissionDecided",
    "PlanMade",
    "PostTaken",
    "PushReport",
    "PushResult",
    "QuestionAnswered",
    "QuestionAsked",
    "QuestionWithdrawn",
    "ReplayRule",
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
    "SlotClosed",
    "SlotOpened",
    "SlotUpdated",
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
    "Watcher",
    "WatcherDropped",
]
