# Written by `python -m scripts.exports`, from the table in __init__.py. Not edited by hand.

from ._config.error import BadConfig as BadConfig
from ._config.load import Config as Config
from ._config.load import Trusted as Trusted
from ._config.load import load_config as load_config
from ._config.mcp_servers import load_mcp_servers as load_mcp_servers
from ._context.directives.commands import CommandContext as CommandContext
from ._context.directives.commands import SessionControls as SessionControls
from ._core.log.past_runs import RunStep as RunStep
from ._core.log.past_runs import ToolCallRecord as ToolCallRecord
from ._core.model.budget import Budget as Budget
from ._core.model.cache import CacheReport as CacheReport
from ._core.model.cache import PrefixChange as PrefixChange
from ._core.model.protocol import OutputSpec as OutputSpec
from ._core.model.protocol import Settings as Settings
from ._core.people.inbox import InboxItem as InboxItem
from ._core.permission.gate import Permissions as Permissions
from ._core.permission.grants import Grant as Grant
from ._core.permission.rules import allow as allow
from ._core.permission.rules import ask as ask
from ._core.permission.rules import deny as deny
from ._core.run.outcome import Outcome as Outcome
from ._core.run.spec import Retry as Retry
from ._core.run.spec import RunOptions as RunOptions
from ._core.run.stop import Limits as Limits
from ._core.schema.parameters import Parameters as Parameters
from ._core.schema.problems import Invalid as Invalid
from ._core.schema.problems import Problem as Problem
from ._core.tools.context import ToolContext as ToolContext
from ._core.tools.slots import ToolDisplaySlots as ToolDisplaySlots
from ._core.tools.tool import Tool as Tool
from ._core.tools.tool import ToolOptions as ToolOptions
from ._core.tools.tool import ToolOutput as ToolOutput
from ._core.tools.tool import tool as tool
from ._core.tools.toolbox import Toolbox as Toolbox
from ._core.values.error import AllModelsFailed as AllModelsFailed
from ._core.values.error import AuthFailed as AuthFailed
from ._core.values.error import BadRequest as BadRequest
from ._core.values.error import ConfigError as ConfigError
from ._core.values.error import ContentRefused as ContentRefused
from ._core.values.error import ContextOverflow as ContextOverflow
from ._core.values.error import EffectNotStarted as EffectNotStarted
from ._core.values.error import EffectUnknown as EffectUnknown
from ._core.values.error import EmptyReply as EmptyReply
from ._core.values.error import InvalidOutput as InvalidOutput
from ._core.values.error import LimitExceeded as LimitExceeded
from ._core.values.error import MiddlewareFailed as MiddlewareFailed
from ._core.values.error import ModelError as ModelError
from ._core.values.error import NotAnswered as NotAnswered
from ._core.values.error import OutOfBudget as OutOfBudget
from ._core.values.error import PerdureError as PerdureError
from ._core.values.error import ProviderDown as ProviderDown
from ._core.values.error import QuotaSpent as QuotaSpent
from ._core.values.error import RateLimited as RateLimited
from ._core.values.error import ReplyCutOff as ReplyCutOff
from ._core.values.error import SessionBusy as SessionBusy
from ._core.values.error import SessionExists as SessionExists
from ._core.values.error import SessionNotFound as SessionNotFound
from ._core.values.error import ShuttingDown as ShuttingDown
from ._core.values.error import StoreError as StoreError
from ._core.values.error import ToolError as ToolError
from ._core.values.error import UsageError as UsageError
from ._core.values.message import UNCERTAIN_STATUSES as UNCERTAIN_STATUSES
from ._core.values.message import Audio as Audio
from ._core.values.message import Citation as Citation
from ._core.values.message import Content as Content
from ._core.values.message import Document as Document
from ._core.values.message import Image as Image
from ._core.values.message import Message as Message
from ._core.values.message import Status as Status
from ._core.values.message import StopReason as StopReason
from ._core.values.message import Text as Text
from ._core.values.message import Thinking as Thinking
from ._core.values.message import ToolCall as ToolCall
from ._core.values.message import ToolResult as ToolResult
from ._core.values.message import Usage as Usage
from ._core.values.message import Video as Video
from ._core.values.message import assistant as assistant
from ._core.values.message import tool_message as tool_message
from ._core.values.message import user as user
from ._core.values.provenance import list_message_sources as list_message_sources
from ._core.watch import Subscription as Subscription
from ._core.watch import WatcherStats as WatcherStats
from ._runtime.agent.agent import Agent as Agent
from ._runtime.agent.class_agent import agent_of as agent_of
from ._runtime.agent.class_agent import tools_of as tools_of
from ._runtime.agent.extension import Extension as Extension
from ._runtime.agent.extension import Lifespan as Lifespan
from ._runtime.agent.middleware import Middleware as Middleware
from ._runtime.agent.middleware import RunMiddleware as RunMiddleware
from ._runtime.agent.middleware import TurnMiddleware as TurnMiddleware
from ._runtime.agent.output import Output as Output
from ._runtime.agent.overrides import ChooseOverrides as ChooseOverrides
from ._runtime.agent.overrides import Overrides as Overrides
from ._runtime.agent.spec import AgentSpec as AgentSpec
from ._runtime.session.report import MessageCounts as MessageCounts
from ._runtime.session.report import SessionUsage as SessionUsage
from ._runtime.session.report import StampedMessage as StampedMessage
from ._runtime.session.session import Session as Session
from ._runtime.session.slots import SessionDisplay as SessionDisplay
from ._runtime.session.stored import StoredSession as StoredSession
from ._runtime.session.stream import RunStream as RunStream
from ._runtime.subagents.tool import SubagentContext as SubagentContext
from ._runtime.transfer import PromptPrefix as PromptPrefix
from ._version import __version__ as __version__

__all__ = [
    "UNCERTAIN_STATUSES",
    "Agent",
    "AgentSpec",
    "AllModelsFailed",
    "Audio",
    "AuthFailed",
    "BadConfig",
    "BadRequest",
    "Budget",
    "CacheReport",
    "ChooseOverrides",
    "Citation",
    "CommandContext",
    "Config",
    "ConfigError",
    "Content",
    "ContentRefused",
    "ContextOverflow",
    "Document",
    "EffectNotStarted",
    "EffectUnknown",
    "EmptyReply",
    "Extension",
    "Grant",
    "Image",
    "InboxItem",
    "Invalid",
    "InvalidOutput",
    "Lifespan",
    "LimitExceeded",
    "Limits",
    "Message",
    "MessageCounts",
    "Middleware",
    "MiddlewareFailed",
    "ModelError",
    "NotAnswered",
    "OutOfBudget",
    "Outcome",
    "Output",
    "OutputSpec",
    "Overrides",
    "Parameters",
    "PerdureError",
    "Permissions",
    "PrefixChange",
    "Problem",
    "PromptPrefix",
    "ProviderDown",
    "QuotaSpent",
    "RateLimited",
    "ReplyCutOff",
    "Retry",
    "RunMiddleware",
    "RunOptions",
    "RunStep",
    "RunStream",
    "Session",
    "SessionBusy",
    "SessionControls",
    "SessionDisplay",
    "SessionExists",
    "SessionNotFound",
    "SessionUsage",
    "Settings",
    "ShuttingDown",
    "StampedMessage",
    "Status",
    "StopReason",
    "StoreError",
    "StoredSession",
    "SubagentContext",
    "Subscription",
    "Text",
    "Thinking",
    "Tool",
    "ToolCall",
    "ToolCallRecord",
    "ToolContext",
    "ToolDisplaySlots",
    "ToolError",
    "ToolOptions",
    "ToolOutput",
    "ToolResult",
    "Toolbox",
    "Trusted",
    "TurnMiddleware",
    "Usage",
    "UsageError",
    "Video",
    "WatcherStats",
    "__version__",
    "agent_of",
    "allow",
    "ask",
    "assistant",
    "deny",
    "list_message_sources",
    "load_config",
    "load_mcp_servers",
    "tool",
    "tool_message",
    "tools_of",
    "user",
]
