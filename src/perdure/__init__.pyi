# Written by `python -m scripts.exports`, from the table in __init__.py. Not edited by hand.

from ._version import __version__ as __version__
from .config import BadConfig as BadConfig
from .config import Config as Config
from .config import load_config as load_config
from .context.agent_role import Role as Role
from .context.compaction import Compaction as Compaction
from .context.compaction_strategies import keep_recent as keep_recent
from .context.directives import Command as Command
from .context.directives import CommandContext as CommandContext
from .context.directives import CommandFailed as CommandFailed
from .context.directives import MentionSettings as MentionSettings
from .context.directives import Rewrite as Rewrite
from .context.directives import ShortCircuit as ShortCircuit
from .context.project_instructions import Project as Project
from .context.prompt_version_files import Prompts as Prompts
from .context.role_files import load_roles as load_roles
from .context.skills import Skill as Skill
from .context.skills import Skills as Skills
from .context.skills import load_skills as load_skills
from .core.auto_continue import auto_continue as auto_continue
from .core.display_slot import Askable as Askable
from .core.display_slot import Showable as Showable
from .core.error import AllModelsFailed as AllModelsFailed
from .core.error import AuthFailed as AuthFailed
from .core.error import BadRequest as BadRequest
from .core.error import ConfigError as ConfigError
from .core.error import Conflict as Conflict
from .core.error import ContentRefused as ContentRefused
from .core.error import ContextOverflow as ContextOverflow
from .core.error import EffectNotStarted as EffectNotStarted
from .core.error import EffectUnknown as EffectUnknown
from .core.error import EmptyReply as EmptyReply
from .core.error import EntryTooNew as EntryTooNew
from .core.error import Fenced as Fenced
from .core.error import InvalidOutput as InvalidOutput
from .core.error import LimitExceeded as LimitExceeded
from .core.error import MiddlewareFailed as MiddlewareFailed
from .core.error import ModelError as ModelError
from .core.error import NotAnswered as NotAnswered
from .core.error import OutOfBudget as OutOfBudget
from .core.error import PerdureError as PerdureError
from .core.error import ProviderDown as ProviderDown
from .core.error import QuotaSpent as QuotaSpent
from .core.error import RateLimited as RateLimited
from .core.error import ReplyCutOff as ReplyCutOff
from .core.error import SessionBusy as SessionBusy
from .core.error import SessionExists as SessionExists
from .core.error import SessionNotFound as SessionNotFound
from .core.error import ShuttingDown as ShuttingDown
from .core.error import StoreError as StoreError
from .core.error import ToolError as ToolError
from .core.error import UnsupportedByStore as UnsupportedByStore
from .core.error import UsageError as UsageError
from .core.event import Entry as Entry
from .core.event import Event as Event
from .core.event import QuestionAsked as QuestionAsked
from .core.failover import failover as failover
from .core.inbox import InboxItem as InboxItem
from .core.loop import react as react
from .core.message import Audio as Audio
from .core.message import Citation as Citation
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
from .core.message import tool_message as tool_message
from .core.message import user as user
from .core.model import Model as Model
from .core.model import ModelInfo as ModelInfo
from .core.model import OutputSpec as OutputSpec
from .core.model import Price as Price
from .core.model import Request as Request
from .core.model import Settings as Settings
from .core.model_and_tool_wrappers import after as after
from .core.model_and_tool_wrappers import around as around
from .core.model_and_tool_wrappers import before as before
from .core.model_and_tool_wrappers import compacted as compacted
from .core.model_and_tool_wrappers import gated as gated
from .core.model_and_tool_wrappers import observed as observed
from .core.model_and_tool_wrappers import retried as retried
from .core.model_and_tool_wrappers import timed as timed
from .core.model_and_tool_wrappers import truncated as truncated
from .core.outcome import Outcome as Outcome
from .core.permission_target import CommandTarget as CommandTarget
from .core.permission_target import PathTarget as PathTarget
from .core.permission_target import UrlTarget as UrlTarget
from .core.permission_target import command as command
from .core.permission_target import path as path
from .core.permission_target import url as url
from .core.permissions import Explanation as Explanation
from .core.permissions import Grant as Grant
from .core.permissions import Grants as Grants
from .core.permissions import Offer as Offer
from .core.permissions import PermissionRequest as PermissionRequest
from .core.permissions import Permissions as Permissions
from .core.permissions import Verdict as Verdict
from .core.permissions import allow as allow
from .core.permissions import allow_all as allow_all
from .core.permissions import ask as ask
from .core.permissions import deny as deny
from .core.permissions import deny_all as deny_all
from .core.permissions import later as later
from .core.prompt_cache_misses import CacheReport as CacheReport
from .core.run import Accepted as Accepted
from .core.run import Retry as Retry
from .core.run import Run as Run
from .core.shared_budget import Budget as Budget
from .core.stop_conditions import Halt as Halt
from .core.stop_conditions import Limits as Limits
from .core.stop_conditions import Nudge as Nudge
from .core.stop_conditions import Step as Step
from .core.stop_conditions import all_of as all_of
from .core.stop_conditions import any_of as any_of
from .core.stop_conditions import max_turns as max_turns
from .core.stop_conditions import mistakes as mistakes
from .core.stop_conditions import none_of as none_of
from .core.stop_conditions import repeated_calls as repeated_calls
from .core.stop_conditions import when_tool_called as when_tool_called
from .core.store import Hit as Hit
from .core.store import InterruptedSession as InterruptedSession
from .core.store import Post as Post
from .core.store import SessionInfo as SessionInfo
from .core.thread_pool import set_tool_threads as set_tool_threads
from .core.tool import Skip as Skip
from .core.tool import Tool as Tool
from .core.tool import ToolOutput as ToolOutput
from .core.tool import tool as tool
from .core.tool import tool_from_schema as tool_from_schema
from .core.tool_context import ToolContext as ToolContext
from .core.toolbox import Toolbox as Toolbox
from .credentials import credentialed as credentialed
from .engines import register_engine as register_engine
from .engines.autonomous_engine import autonomous as autonomous
from .engines.chain_of_thought_engine import chain_of_thought as chain_of_thought
from .engines.passthrough_engine import passthrough as passthrough
from .engines.planner_engine import planner as planner
from .engines.reflect_engine import reflect as reflect
from .goals.goal import Goal as Goal
from .goals.goal_pursuit import pursue_goal as pursue_goal
from .goals.goal_pursuit import resume_goal as resume_goal
from .goals.until_engine import until as until
from .grading.evidence import Evidence as Evidence
from .grading.grade import Grade as Grade
from .imported_session_filter import ImportReport as ImportReport
from .mcp.server_settings import McpServer as McpServer
from .mcp_catalogue import CatalogueEntry as CatalogueEntry
from .mcp_catalogue import McpCatalogue as McpCatalogue
from .mcp_extension import McpServers as McpServers
from .memory.embedder import Embedder as Embedder
from .memory.history_processors import BufferMemory as BufferMemory
from .memory.history_processors import CompositeMemory as CompositeMemory
from .memory.history_processors import WindowMemory as WindowMemory
from .memory.long_term_memory import LongTermMemory as LongTermMemory
from .memory.memory_json_lines import MemoryImportReport as MemoryImportReport
from .memory.memory_record import MemoryHit as MemoryHit
from .memory.memory_record import MemoryRecord as MemoryRecord
from .memory.memory_record import MemoryScope as MemoryScope
from .memory.vector_memory import VectorMemory as VectorMemory
from .models import open_model as open_model
from .replaying.replay import Divergence as Divergence
from .replaying.replay import ReplayReport as ReplayReport
from .replaying.replay import replay as replay
from .runtime.agent import Agent as Agent
from .runtime.class_agent import agent_of as agent_of
from .runtime.class_agent import tools_of as tools_of
from .runtime.extension import Extension as Extension
from .runtime.middleware import Middleware as Middleware
from .runtime.output import Output as Output
from .runtime.session import Session as Session
from .runtime.stream import RunStream as RunStream
from .runtime.subagents.delegation_tools import delegation as delegation
from .runtime.subagents.delegation_tools import orchestrator as orchestrator
from .runtime.subagents.subagent_tool import SubagentContext as SubagentContext
from .runtime.subagents.subagent_tool import subagent as subagent
from .session_transfer import export_session as export_session
from .session_transfer import import_session as import_session
from .stores import open_store as open_store
from .tracing.curl_command import to_curl as to_curl
from .tracing.otel_watcher import OtelWatcher as OtelWatcher
from .tracing.printing_watchers import log_tool_calls as log_tool_calls
from .tracing.printing_watchers import mirror_text as mirror_text
from .tracing.printing_watchers import mirror_tool_calls as mirror_tool_calls
from .tracing.trace import Trace as Trace
from .tracing.trace import read_trace as read_trace
from .tracing.trace import trace_session as trace_session
from .tracing.tracer import Tracer as Tracer

__all__ = [
    "Accepted",
    "Agent",
    "AllModelsFailed",
    "Askable",
    "Audio",
    "AuthFailed",
    "BadConfig",
    "BadRequest",
    "Budget",
    "BufferMemory",
    "CacheReport",
    "CatalogueEntry",
    "Citation",
    "Command",
    "CommandContext",
    "CommandFailed",
    "CommandTarget",
    "Compaction",
    "CompositeMemory",
    "Config",
    "ConfigError",
    "Conflict",
    "ContentRefused",
    "ContextOverflow",
    "Divergence",
    "Document",
    "EffectNotStarted",
    "EffectUnknown",
    "Embedder",
    "EmptyReply",
    "Entry",
    "EntryTooNew",
    "Event",
    "Evidence",
    "Explanation",
    "Extension",
    "Fenced",
    "Goal",
    "Grade",
    "Grant",
    "Grants",
    "Halt",
    "Hit",
    "Image",
    "ImportReport",
    "InboxItem",
    "InterruptedSession",
    "InvalidOutput",
    "LimitExceeded",
    "Limits",
    "LongTermMemory",
    "McpCatalogue",
    "McpServer",
    "McpServers",
    "MemoryHit",
    "MemoryImportReport",
    "MemoryRecord",
    "MemoryScope",
    "MentionSettings",
    "Message",
    "Middleware",
    "MiddlewareFailed",
    "Model",
    "ModelError",
    "ModelInfo",
    "NotAnswered",
    "Nudge",
    "Offer",
    "OtelWatcher",
    "OutOfBudget",
    "Outcome",
    "Output",
    "OutputSpec",
    "PathTarget",
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
    "ReplayReport",
    "ReplyCutOff",
    "Request",
    "Retry",
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
    "ShuttingDown",
    "Skill",
    "Skills",
    "Skip",
    "Status",
    "Step",
    "StopReason",
    "StoreError",
    "SubagentContext",
    "Text",
    "Thinking",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "ToolResult",
    "Toolbox",
    "Trace",
    "Tracer",
    "UnsupportedByStore",
    "UrlTarget",
    "Usage",
    "UsageError",
    "VectorMemory",
    "Verdict",
    "Video",
    "WindowMemory",
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
    "autonomous",
    "before",
    "chain_of_thought",
    "command",
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
    "mirror_tool_calls",
    "mistakes",
    "none_of",
    "observed",
    "open_model",
    "open_store",
    "orchestrator",
    "passthrough",
    "path",
    "planner",
    "pursue_goal",
    "react",
    "read_trace",
    "reflect",
    "register_engine",
    "repeated_calls",
    "replay",
    "resume_goal",
    "retried",
    "set_tool_threads",
    "subagent",
    "timed",
    "to_curl",
    "tool",
    "tool_from_schema",
    "tool_message",
    "tools_of",
    "trace_session",
    "truncated",
    "until",
    "url",
    "user",
    "when_tool_called",
]
