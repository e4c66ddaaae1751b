"""Perdure: an agent runtime that keeps every turn.

    from perdure import Agent, tool

Names are imported when they are first used; importing the package runs nothing.
"""

from typing import TYPE_CHECKING

from ._version import __version__

if TYPE_CHECKING:
    from .agent import Agent as Agent
    from .class_agent import agent_of as agent_of
    from .class_agent import tools_of as tools_of
    from .config import BadConfig as BadConfig
    from .config import Config as Config
    from .config import load_config as load_config
    from .context.compaction import Compaction as Compaction
    from .context.directives import Hook as Hook
    from .context.directives import HookContext as HookContext
    from .context.directives import HookFailed as HookFailed
    from .context.directives import Mentions as Mentions
    from .context.directives import Rewrite as Rewrite
    from .context.directives import ShortCircuit as ShortCircuit
    from .context.project import Project as Project
    from .context.prompts import Prompts as Prompts
    from .context.role import Role as Role
    from .context.roles import load_roles as load_roles
    from .context.skills import Skill as Skill
    from .context.skills import Skills as Skills
    from .context.skills import load_skills as load_skills
    from .context.strategies import keep_recent as keep_recent
    from .core.cache import CacheReport as CacheReport
    from .core.error import AllModelsFailed as AllModelsFailed
    from .core.error import AuthFailed as AuthFailed
    from .core.error import BadRequest as BadRequest
    from .core.error import ConfigError as ConfigError
    from .core.error import Conflict as Conflict
    from .core.error import ContextOverflow as ContextOverflow
    from .core.error import EmptyReply as EmptyReply
    from .core.error import Fenced as Fenced
    from .core.error import InvalidOutput as InvalidOutput
    from .core.error import ModelError as ModelError
    from .core.error import NotAnswered as NotAnswered
    from .core.error import NotStarted as NotStarted
    from .core.error import OutOfBudget as OutOfBudget
    from .core.error import PerdureError as PerdureError
    from .core.error import ProviderDown as ProviderDown
    from .core.error import QuotaSpent as QuotaSpent
    from .core.error import RateLimited as RateLimited
    from .core.error import Refused as Refused
    from .core.error import ReplyCutOff as ReplyCutOff
    from .core.error import SessionBusy as SessionBusy
    from .core.error import SessionExists as SessionExists
    from .core.error import SessionNotFound as SessionNotFound
    from .core.error import StoreError as StoreError
    from .core.error import ToolError as ToolError
    from .core.error import UnreadableEntry as UnreadableEntry
    from .core.error import Unsupported as Unsupported
    from .core.error import UsageError as UsageError
    from .core.event import Entry as Entry
    from .core.event import Event as Event
    from .core.event import QuestionAsked as QuestionAsked
    from .core.inbox import InboxItem as InboxItem
    from .core.ledger import Ledger as Ledger
    from .core.loop import react as react
    from .core.message import Audio as Audio
    from .core.message import Document as Document
    from .core.message import Image as Image
    from .core.message import Message as Message
    from .core.message import Status as Status
    from .core.message import StopReason as StopReason
    from .core.message import Text as Text
    from .core.message import Thinking as Thinking
    from .core.message import ToolCall as ToolCall
    from .core.message import ToolResult as ToolResult
    from .core.message import Usage as Usage
    from .core.message import Video as Video
    from .core.message import assistant as assistant
    from .core.message import user as user
    from .core.model import Model as Model
    from .core.model import ModelInfo as ModelInfo
    from .core.model import OutputSpec as OutputSpec
    from .core.model import Price as Price
    from .core.model import Request as Request
    from .core.model import Settings as Settings
    from .core.outcome import Outcome as Outcome
    from .core.permission import Explanation as Explanation
    from .core.permission import Grants as Grants
    from .core.permission import PermissionRequest as PermissionRequest
    from .core.permission import Permissions as Permissions
    from .core.permission import Verdict as Verdict
    from .core.permission import allow as allow
    from .core.permission import allow_all as allow_all
    from .core.permission import ask as ask
    from .core.permission import deny as deny
    from .core.permission import deny_all as deny_all
    from .core.permission import later as later
    from .core.proceed import auto_continue as auto_continue
    from .core.run import Accepted as Accepted
    from .core.run import Again as Again
    from .core.run import Run as Run
    from .core.slot import Askable as Askable
    from .core.slot import Showable as Showable
    from .core.stop import Halt as Halt
    from .core.stop import Limits as Limits
    from .core.stop import Nudge as Nudge
    from .core.stop import Step as Step
    from .core.stop import all_of as all_of
    from .core.stop import any_of as any_of
    from .core.stop import max_turns as max_turns
    from .core.stop import mistakes as mistakes
    from .core.stop import none_of as none_of
    from .core.stop import repeated_calls as repeated_calls
    from .core.stop import when_tool_called as when_tool_called
    from .core.store import Hit as Hit
    from .core.store import Post as Post
    from .core.store import SessionInfo as SessionInfo
    from .core.tool import Skip as Skip
    from .core.tool import Tool as Tool
    from .core.tool import ToolOutput as ToolOutput
    from .core.tool import tool as tool
    from .core.tool import tool_from_schema as tool_from_schema
    from .core.tool_context import ToolContext as ToolContext
    from .core.toolbox import Toolbox as Toolbox
    from .core.wrap import after as after
    from .core.wrap import around as around
    from .core.wrap import before as before
    from .core.wrap import compacted as compacted
    from .core.wrap import failover as failover
    from .core.wrap import gated as gated
    from .core.wrap import observed as observed
    from .core.wrap import retried as retried
    from .core.wrap import timed as timed
    from .core.wrap import truncated as truncated
    from .credentials import credentialed as credentialed
    from .extension import Extension as Extension
    from .models import open_model as open_model
    from .output import Output as Output
    from .replaying.replay import Divergence as Divergence
    from .replaying.replay import Replayed as Replayed
    from .replaying.replay import replay as replay
    from .session import Session as Session
    from .stores import open_store as open_store
    from .stream import RunStream as RunStream
    from .subagents.as_tool import Assignment as Assignment
    from .subagents.as_tool import subagent as subagent
    from .subagents.delegation import delegation as delegation
    from .subagents.delegation import orchestrator as orchestrator
    from .tracing.mirror import log_tool_calls as log_tool_calls
    from .tracing.mirror import mirror_text as mirror_text
    from .transfer import export_session as export_session
    from .transfer import import_session as import_session

__all__ = [
    "Accepted",
    "Again",
    "Agent",
    "AllModelsFailed",
    "Askable",
    "Assignment",
    "Audio",
    "AuthFailed",
    "BadConfig",
    "BadRequest",
    "CacheReport",
    "Compaction",
    "Config",
    "ConfigError",
    "Conflict",
    "ContextOverflow",
    "Divergence",
    "Document",
    "EmptyReply",
    "Entry",
    "Event",
    "Explanation",
    "Extension",
    "Fenced",
    "Grants",
    "Halt",
    "Hit",
    "Hook",
    "HookContext",
    "HookFailed",
    "Image",
    "InboxItem",
    "InvalidOutput",
    "Ledger",
    "Limits",
    "Mentions",
    "Message",
    "Model",
    "ModelError",
    "ModelInfo",
    "NotAnswered",
    "NotStarted",
    "Nudge",
    "OutOfBudget",
    "Outcome",
    "Output",
    "OutputSpec",
    "PerdureError",
    "PermissionRequest",
    "Permissions",
    "Post",
    "Price",
    "Project",
    "Prompts",
    "ProviderDown",
    "QuestionAsked",
    "QuotaSpent",
    "RateLimited",
    "Refused",
    "Replayed",
    "ReplyCutOff",
    "Request",
    "Rewrite",
    "Role",
    "Run",
    "RunStream",
    "Session",
    "SessionBusy",
    "SessionExists",
    "SessionInfo",
    "SessionNotFound",
    "Settings",
    "ShortCircuit",
    "Showable",
    "Skill",
    "Skills",
    "Skip",
    "Status",
    "Step",
    "StopReason",
    "StoreError",
    "Text",
    "Thinking",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "ToolResult",
    "Toolbox",
    "UnreadableEntry",
    "Unsupported",
    "Usage",
    "UsageError",
    "Verdict",
    "Video",
    "__version__",
    "after",
    "agent_of",
    "all_of",
    "allow",
    "allow_all",
    "any_of",
    "around",
    "ask",
    "assistant",
    "auto_continue",
    "before",
    "compacted",
    "credentialed",
    "delegation",
    "deny",
    "deny_all",
    "export_session",
    "failover",
    "gated",
    "import_session",
    "keep_recent",
    "later",
    "load_config",
    "load_roles",
    "load_skills",
    "log_tool_calls",
    "max_turns",
    "mirror_text",
    "mistakes",
    "none_of",
    "observed",
    "open_model",
    "open_store",
    "orchestrator",
    "react",
    "repeated_calls",
    "replay",
    "retried",
    "subagent",
    "timed",
    "tool",
    "tool_from_schema",
    "tools_of",
    "truncated",
    "user",
    "when_tool_called",
]

_HOMES = {
    ".agent": ("Agent",),
    ".class_agent": (
        "agent_of",
        "tools_of",
    ),
    ".config": (
        "BadConfig",
        "Config",
        "load_config",
    ),
    ".context.compaction": ("Compaction",),
    ".context.directives": (
        "Hook",
        "HookContext",
        "HookFailed",
        "Mentions",
        "Rewrite",
        "ShortCircuit",
    ),
    ".context.project": ("Project",),
    ".context.prompts": ("Prompts",),
    ".context.role": ("Role",),
    ".context.roles": ("load_roles",),
    ".context.skills": (
        "Skill",
        "Skills",
        "load_skills",
    ),
    ".context.strategies": ("keep_recent",),
    ".core.cache": ("CacheReport",),
    ".core.error": (
        "AllModelsFailed",
        "AuthFailed",
        "BadRequest",
        "ConfigError",
        "Conflict",
        "ContextOverflow",
        "EmptyReply",
        "Fenced",
        "InvalidOutput",
        "ModelError",
        "NotAnswered",
        "NotStarted",
        "OutOfBudget",
        "ProviderDown",
        "QuotaSpent",
        "RateLimited",
        "Refused",
        "ReplyCutOff",
        "SessionBusy",
        "SessionExists",
        "SessionNotFound",
        "StoreError",
        "ToolError",
        "UnreadableEntry",
        "Unsupported",
        "UsageError",
        "PerdureError",
    ),
    ".core.event": (
        "Entry",
        "Event",
        "QuestionAsked",
    ),
    ".core.inbox": ("InboxItem",),
    ".core.ledger": ("Ledger",),
    ".core.loop": ("react",),
    ".core.message": (
        "Audio",
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
    ".core.permission": (
        "Explanation",
        "Grants",
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
    ".core.proceed": ("auto_continue",),
    ".core.run": (
        "Accepted",
        "Again",
        "Run",
    ),
    ".core.slot": (
        "Askable",
        "Showable",
    ),
    ".core.stop": (
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
        "Post",
        "SessionInfo",
    ),
    ".core.tool": (
        "Skip",
        "Tool",
        "ToolOutput",
        "tool",
        "tool_from_schema",
    ),
    ".core.tool_context": ("ToolContext",),
    ".core.toolbox": ("Toolbox",),
    ".core.wrap": (
        "after",
        "around",
        "before",
        "compacted",
        "failover",
        "gated",
        "observed",
        "retried",
        "timed",
        "truncated",
    ),
    ".credentials": ("credentialed",),
    ".extension": ("Extension",),
    ".models": ("open_model",),
    ".output": ("Output",),
    ".replaying.replay": (
        "Divergence",
        "Replayed",
        "replay",
    ),
    ".session": ("Session",),
    ".stores": ("open_store",),
    ".stream": ("RunStream",),
    ".subagents.as_tool": (
        "Assignment",
        "subagent",
    ),
    ".subagents.delegation": (
        "delegation",
        "orchestrator",
    ),
    ".tracing.mirror": (
        "log_tool_calls",
        "mirror_text",
    ),
    ".transfer": (
        "export_session",
        "import_session",
    ),
}
"""Where each public name lives."""

_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(module, __name__), name)
    globals()[name] = value  # so that the next use does not come here
    return value


def __dir__() -> list[str]:
    return __all__
