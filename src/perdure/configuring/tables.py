"""What may stand in `perdure.toml`, table by table. Above: `schema.py`, `config.py`. Below: `core`.

These values are what the file says, and no more: nothing is opened, imported or looked up by making them. The JSON
Schema of the file is made from them, and the text under each field is its description there.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from perdure.core.model import Settings
from perdure.core.permission import Policy, Rule
from perdure.core.stop import Limits


class RuleTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Calls that match all of these patterns (`*`, `?`, `[…]`)."""

    tool: str = "*"
    """The name of the tool."""
    action: str = "*"
    """What kind of thing is done; the tool's name when it does not say."""
    target: str = "*"
    """To what: a path, an address, a command line."""

    def rule(self, policy: Policy) -> Rule:
        """The rule that it stands for."""
        return Rule(policy, self.tool, self.action, self.target)


RuleEntry: TypeAlias = str | RuleTable
"""The pattern of a tool's name, or a table that says more."""


class PermissionsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which calls are made, which never, and which are asked about. Deny outranks ask, and ask outranks allow."""

    allow: tuple[RuleEntry, ...] = ()
    """Calls that need no question."""
    deny: tuple[RuleEntry, ...] = ()
    """Calls that are never made."""
    ask: tuple[RuleEntry, ...] = ()
    """Calls that somebody has to agree to, even if the tool does not ask for it."""
    otherwise: Literal["deny", "later"] = "deny"
    """What becomes of a call that has to be asked about when nobody is here: it is denied, or the run waits."""
    expires_seconds: float | None = None
    """How long a question stays open; then the answer is no."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All of them, for `Permissions(…)`."""
        policies: tuple[Policy, ...] = ("deny", "ask", "allow")
        return tuple(_rule(policy, entry) for policy in policies for entry in getattr(self, policy))


def _rule(policy: Policy, entry: RuleEntry) -> Rule:
    return (RuleTable(tool=entry) if isinstance(entry, str) else entry).rule(policy)


class PromptsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Instructions in versions: a folder of `*.md` files, each of which is one."""

    directory: str
    """The folder."""
    default: str
    """The version that is used when none is named. Its file has to be there."""
    version: str = ""
    """The version that is used; empty for the default."""


class CompactionTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """When and how the beginning of a long conversation is replaced by a summary."""

    at_fraction: float = 0.8
    """Of the model's window, when that is known."""
    at_tokens: int | None = None
    """At this size of the context, whatever the window."""
    at_messages: int | None = None
    """At so many messages."""
    at_turns: int | None = None
    """At so many turns since the last summary, or since the beginning."""
    keep_recent_tokens: int = 20_000
    """How much stays word for word, at most."""
    keep_recent_messages: int | None = None
    """In how many messages, at most."""
    reserve_tokens: int | None = None
    """Room for the answer. By default what the settings, or the model, allow an answer."""
    model: str = ""
    """Who sums up, as `"provider:model"`; empty for the model of the agent."""
    instructions: str = ""
    """What a summary has to heed besides."""
    strategy: Literal["snapshot", "keep_recent"] = "snapshot"
    """Whether a model writes a summary, or what is old is left out without one."""


class ExtensionsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Bundles of more that the agent can do."""

    large_results: bool | int = False
    """Whether results that are too long are sent as a preview; or from how many characters on."""
    short_results: bool = False
    """Whether results of earlier runs are sent in their short form."""
    history: bool = False
    """Whether the model can search all that was said."""
    notebook: bool = False
    """Whether it has a list of tasks and a page for notes."""
    imports: tuple[str, ...] = ()
    """Others, by where they are imported from: `"package.module:name"`, an extension or a function that makes one."""


class VaultTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the secrets are that tools get, and the model does not. The first place that has a name counts."""

    environment: str | None = None
    """Variables that begin with this; what follows is the name."""
    file: str = ""
    """A file of secrets that its owner alone can read."""
    keyring: str = ""
    """A service in the keyring of the system."""


class ServerTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a server of the Model Context Protocol is started, or where it is reached."""

    type: Literal["", "stdio", "http", "streamable-http", "sse"] = ""
    """How one speaks with it. By default `stdio` with a command, and `http` with an address."""
    command: str = ""
    """The program that is started, without a shell."""
    args: tuple[str, ...] = ()
    """What the program is given."""
    env: Mapping[str, str] = {}
    """What is added to its environment."""
    cwd: str = ""
    """The folder in which it is started."""
    url: str = ""
    """Where it is reached."""
    headers: Mapping[str, str] = {}
    """What is sent along with each request."""
    disabled: bool = False
    """Whether it is left out."""


class McpTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Servers of the Model Context Protocol."""

    files: tuple[str, ...] = ()
    """Files in the form of `.mcp.json`."""
    servers: Mapping[str, ServerTable] = {}
    """Servers by name. In texts, `${NAME}` stands for a variable of the environment, `${NAME:-words}` has a default."""


class ConfigFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An agent, as `perdure.toml` describes it. Paths are seen from the folder of the file."""

    model: str = ""
    """Who answers: `"provider:model"`."""
    base_url: str = ""
    """Where that provider is reached, if not at its usual address."""
    name: str = "agent"
    """What the agent is called in events, logs and as a tool."""
    description: str = ""
    """What it is good for, told to other agents."""
    instructions: str = ""
    """What it is told before every conversation."""
    instructions_file: str = ""
    """The same, as a file of its own."""
    prompts: PromptsTable | None = None
    """The same, as a folder of files in versions."""
    tools: tuple[str, ...] = ()
    """What it can do: tools, or lists of tools, by where they are imported from: `"package.module:name"`."""
    store: str = ""
    """Where its sessions are kept: `"memory:"`, `"file:DIR"`, `"sqlite:PATH"` or `"postgresql://…"`."""
    workdir: str = "."
    """The folder it works in."""
    project: bool = False
    """Whether it is told what the AGENTS.md files of the project say."""
    skills: bool | tuple[str, ...] = False
    """Whether it has the skills of the project and the user; or the folders of skills that it has instead."""
    roles: str = ""
    """A folder with a `*.md` file for each role."""
    role: str = ""
    """The role that it has at first."""
    interactive: bool = True
    """Whether somebody is there who can be asked."""
    limits: Limits = Limits()
    """What a run may use."""
    settings: Settings = Settings()
    """How the model is to answer."""
    permissions: PermissionsTable | None = None
    """Which calls are made, which never, and which are asked about."""
    compaction: CompactionTable | None = None
    """When a long conversation is summed up, and how. Without this table it is not."""
    mentions: bool = False
    """Whether `@file` in a message attaches a file of the folder that it works in."""
    extensions: ExtensionsTable = ExtensionsTable()
    """Bundles of more that the agent can do."""
    vault: VaultTable | None = None
    """Where the secrets are that tools get, and the model does not."""
    mcp: McpTable = McpTable()
    """Servers of the Model Context Protocol."""
