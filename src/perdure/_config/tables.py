"""The tables of `perdure.toml` as classes: `PermissionsTable` is `[permissions]`, and so on.

These values are the contents of the file and no more: creating them opens, imports and looks up nothing. The JSON
Schema of the file is built from them; the text under each field is its description there.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from perdure._context.history.compaction import CompactionOptions
from perdure._core.model.protocol import Settings
from perdure._core.permission.rules import Policy, Rule
from perdure._core.run.stop import Limits
from perdure._mcp.settings import McpServerOptions


class RuleTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Entry of `allow`, `deny` or `ask` in `[permissions]`: patterns (`*`, `?`, `[…]`) that must all match."""

    tool: str = "*"
    """Name of the tool."""
    action: str = "*"
    """Kind of action; the tool's name unless the tool declares another."""
    target: str = "*"
    """Target of the action: a path, an address, a command line."""
    when: str = ""
    """Label, such as `untrusted`: the rule is only for calls that follow text with it. Empty for all calls."""

    def rule(self, policy: Policy) -> Rule:
        """Return this entry as a permission `Rule` with the policy `allow`, `deny` or `ask`."""
        return Rule(policy, self.tool, self.action, self.target, self.when)


RuleEntry: TypeAlias = str | RuleTable
"""Entry of a list in `[permissions]`: a pattern for the tool's name, or a table with more patterns."""


class PermissionsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[permissions]`: rules that allow, deny or ask the user about tool calls. Deny outranks ask, and ask outranks
    allow.
    """

    allow: tuple[RuleEntry, ...] = ()
    """Calls that need no approval."""
    deny: tuple[RuleEntry, ...] = ()
    """Calls that are always denied."""
    ask: tuple[RuleEntry, ...] = ()
    """Calls that need approval, even if the tool does not require it."""
    otherwise: Literal["deny", "later"] = "deny"
    """Action for a call that needs approval when no user can be asked: deny it, or let the run wait."""
    expires_seconds: float | None = None
    """Time limit for an approval; after it the call is denied."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All entries of the table as rules, to be passed to `Permissions(…)`."""
        policies: tuple[Policy, ...] = ("deny", "ask", "allow")
        return tuple(_rule(policy, entry) for policy in policies for entry in getattr(self, policy))


def _rule(policy: Policy, entry: RuleEntry) -> Rule:
    return (RuleTable(tool=entry) if isinstance(entry, str) else entry).rule(policy)


class PromptsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[prompts]`: versioned instructions, from a folder with one `*.md` file per version."""

    directory: str
    """Folder of the versions."""
    default: str
    """Version used when none is named. Its file must exist."""
    version: str = ""
    """Version to use; empty for the default."""


class CompactionTable(CompactionOptions, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[compaction]`: when and how the beginning of a long conversation is replaced by a summary."""

    model: str = ""
    """Model that writes the summary, as `"provider:model"`; empty for the agent's model."""
    strategy: Literal["snapshot", "keep_recent"] = "snapshot"
    """`snapshot`: a model writes a summary. `keep_recent`: old messages are dropped without one."""


class ExtensionsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[extensions]`: extensions that give the agent more tools or change what the model is sent."""

    large_results: bool | int = False
    """True to send long tool results as a preview; or the number of characters from which to do so."""
    short_results: bool = False
    """True to send the tool results of earlier runs in their short form."""
    history: bool = False
    """True to let the model search the whole conversation."""
    notebook: bool = False
    """True to give the model a task list and a page of notes."""
    tool_search: bool | int = False
    """True to send the model a catalogue from which it loads tools; or the number of tools from which to do so."""
    code_mode: bool = False
    """True to let the model write programs that call its tools."""
    imports: tuple[str, ...] = ()
    """Other extensions: `"package.module:name"` or `"./file.py:name"`, an extension or a function that returns one."""


class MemoryTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[memory]`: lets the model remember, recall and forget across sessions, for one user, one project or both."""

    file: str = ""
    """SQLite file of the memories. By default `memory.db` in `~/.perdure`."""
    user: str = ""
    """User whose memories these are; empty for none."""
    project: str = ""
    """Project that the memories are about; empty for none."""
    entities: bool = False
    """True to let the model store properties of persons, places and things."""
    episodes: bool = False
    """True to let the model store events with their time and participants."""


class VaultTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[vault]`: sources of secrets that tools receive and the model does not. The first that has a secret is used."""

    environment: str | None = None
    """Prefix of environment variables; the rest of the variable is the name of the secret."""
    file: str = ""
    """File of secrets, readable by its owner only."""
    keyring: str = ""
    """Service in the system's keyring."""


class McpServerTable(McpServerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[mcp.servers.NAME]`: an MCP server (Model Context Protocol), by the command that starts it or by its URL."""

    type: Literal["", "stdio", "http", "streamable-http", "sse"] = ""
    """Transport. By default `stdio` with a command, and `http` with a URL."""
    disabled: bool = False
    """True to ignore this server."""


class McpTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[mcp]`: MCP servers (Model Context Protocol), described here or in files such as `.mcp.json`."""

    files: tuple[str, ...] = ()
    """Files in the format of `.mcp.json`."""
    servers: Mapping[str, McpServerTable] = {}
    """Servers by name. In texts, `${NAME}` is replaced by an environment variable; `${NAME:-default}` has a default."""


class ScheduleTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[[schedule]]`: a task that the agent does unattended, at set times or when it is triggered."""

    name: str
    """Name of the schedule."""
    every: str = ""
    """Interval, such as `"30s"`, `"5m"`, `"12h"`, `"1d"` or `"1w"`."""
    at: str = ""
    """Moment in ISO format, such as `"2026-11-18T09:00+01:00"`."""
    cron: str = ""
    """Cron expression with five fields, such as `"0 9 * * 1-5"`."""
    timezone: str = ""
    """Time zone of `cron`, or of `at` without an offset, such as `"Europe/Berlin"`; by default UTC for `cron`."""
    prompt: str = ""
    """Prompt of each run."""
    skill: str = ""
    """Skill that each run begins with, instead of a prompt."""
    session: str = ""
    """Session of the runs; by default one of the schedule's name."""
    new_session: bool = False
    """True for a session of its own for each run."""
    role: str = ""
    """Role of the agent."""
    timeout_seconds: float | None = 3600.0
    """The longest time of a run."""
    retries: int = 0
    """Number of times that a failed run without an effect is tried again."""
    retry_seconds: float = 1.0
    """Time until the first retry; each further one takes twice as long."""
    late_seconds: float | None = None
    """How late a run may begin; by default a minute, and any time for `at`."""


class ConfigFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """All of `perdure.toml`: the description of an agent. Paths are relative to the folder of the file."""

    model: str = ""
    """Model of the agent, as `"provider:model"`."""
    base_url: str = ""
    """URL of the provider, if not its usual one."""
    name: str = "agent"
    """Name of the agent in events, in logs and as a tool."""
    description: str = ""
    """Description of the agent for other agents."""
    instructions: str = ""
    """System instructions of the agent."""
    instructions_file: str = ""
    """File with the instructions, instead of `instructions`."""
    prompts: PromptsTable | None = None
    """Folder of versioned instructions, instead of `instructions`."""
    tools: tuple[str, ...] = ()
    """Tools, or lists of tools: `"package.module:name"`, or `"./file.py:name"` for a file beside this one."""
    store: str = ""
    """Store of its sessions: `"memory:"`, `"file:DIR"`, `"sqlite:PATH"` or `"postgresql://…"`."""
    workdir: str = "."
    """Working folder of the agent."""
    project: bool = False
    """True to include the project's AGENTS.md files in the instructions."""
    skills: bool | tuple[str, ...] = False
    """True for the skills of the project and the user; or folders of skills to use instead."""
    roles: str = ""
    """Folder with one `*.md` file per role."""
    role: str = ""
    """Initial role."""
    engine: str = ""
    """Name of the engine, such as `"planner"`: how turns and tool calls follow each other. By default `"react"`."""
    interactive: bool = True
    """True if a user can be asked."""
    limits: Limits = Limits()
    """Limits of a run."""
    settings: Settings = Settings()
    """Settings of the model."""
    permissions: PermissionsTable | None = None
    """Which tool calls are allowed, denied, or need approval."""
    compaction: CompactionTable | None = None
    """When and how a long conversation is summarised. Without this table it is not."""
    mentions: bool = False
    """True if `@file` in a message attaches a file of the working folder."""
    extensions: ExtensionsTable = ExtensionsTable()
    """Extensions that add abilities to the agent."""
    memory: MemoryTable | None = None
    """Memory across sessions. Without this table there is none."""
    vault: VaultTable | None = None
    """Sources of secrets that tools receive and the model does not."""
    mcp: McpTable = McpTable()
    """MCP servers (Model Context Protocol)."""
    schedule: tuple[ScheduleTable, ...] = ()
    """Tasks that `perdure schedule serve` runs unattended."""
