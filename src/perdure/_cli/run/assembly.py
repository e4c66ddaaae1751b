"""Assemble the agent of `perdure run` from options, environment, project files and defaults, in that order.

What a project suggests and cannot be used is reported and left out, except its configuration file, which is an error.
"""

import logging
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from perdure._cli.home import check_store_folder, grants_path, resolve_store_spec
from perdure._cli.terminal.output import to_one_line
from perdure._context.directives.mentions import MentionSettings
from perdure._context.history.compaction import Compaction
from perdure._context.role import Role
from perdure._core.permission.gate import Gate, Handler, Permissions, later
from perdure._core.permission.rules import Rule, allow
from perdure._core.permission.targets.command import NETWORK_ACTION
from perdure._core.run.stop import Limits
from perdure._core.tools.tool import Tool
from perdure._core.values.error import ConfigError
from perdure._core.values.provenance import UNTRUSTED_LABEL
from perdure._engines.registry import open_engine
from perdure._people.grants import GrantFile
from perdure._runtime.agent.agent import Agent
from perdure._runtime.agent.extension import Extension
from perdure._runtime.agent.overrides import Overrides
from perdure._runtime.agent.unmatched_rules import describe_unmatched_rules, mark_rule_as_told
from perdure._tools.basic import basic_tools

from .folder_trust import check_folder_trust
from .model import ModelChoice, choose_model, is_in_process_model
from .options import AgentOptions
from .project import (
    build_coding_extension,
    build_long_context_extensions,
    describe_missing_sandbox,
    is_in_repository,
    load_project_instructions,
    load_project_roles,
    load_skill_trust,
    load_user_and_project_skills,
    try_to_load,
)
from .trusted_config import read_config

if TYPE_CHECKING:
    from perdure._config.load import Config

    from .options import RunCommandOptions

_log = logging.getLogger("perdure")
_ALLOWED: Final = re.compile(r"([^\s()]+)(?:\((.+)\))?", re.DOTALL)


class AgentParts(Struct, frozen=True, kw_only=True, eq=False):
    """Everything needed to build the agent of `perdure run`: its model, `Agent` options, and notes for the user."""

    choice: ModelChoice
    """The model, and why it was chosen."""
    options: dict[str, Any]
    """Keyword arguments for `Agent`."""
    config: "Config | None" = None
    """The configuration file in use, if any."""
    notes: tuple[str, ...] = ()
    """Notes for the user about what was found and left out."""
    allowed: tuple[Rule, ...] = ()
    """Rules of `--allow`, which come after those of the configuration."""

    @property
    def store(self) -> str:
        """Store in which the sessions are kept, such as `sqlite:PATH`."""
        store: str = self.options["store"]
        return store

    def build_agent(self, **more: Any) -> Agent[Any]:
        """Build the agent; keyword arguments are further options of `Agent`. Warns of rules that match no tool."""
        agent = Agent[Any](**{**self.options, **more})
        for rule in self.list_rules():
            mark_rule_as_told(rule)
        for text in describe_unmatched_rules(self.list_rules(), agent):
            _log.warning("%s", to_one_line(text))
        return agent

    def list_rules(self) -> Sequence[Rule]:
        """Return the permission rules of the configuration file, and those of `--allow`."""
        table = None if self.config is None else self.config.tables.permissions
        return [*(() if table is None else table.rules), *self.allowed]

    def build_gate(self, handler: Handler | None, *, yes: bool = False, wait: bool = False) -> Gate:
        """Build the gate that decides whether a tool call may run.

        Configured denials apply even with `yes`, and so does what no rule allows: calls that could send private data
        away after untrusted text, and the network for a command.
        """
        table = None if self.config is None else self.config.tables.permissions
        rules = self.list_rules()
        if yes:
            rules = [*[rule for rule in rules if rule.policy == "deny" or rule.action == NETWORK_ACTION], allow()]
        waits = wait or (table is not None and table.otherwise == "later")
        return Permissions(
            *rules,
            handler=handler or (later if waits else None),
            grants=GrantFile(grants_path()),
            expires_seconds=None if table is None else table.expires_seconds,
        )

    def build_overrides(self, order: "RunCommandOptions") -> Overrides[Any]:
        """Return the overrides of one run, which the log keeps so that `resume` uses the same ones."""
        given = Overrides[Any]()
        if isinstance(self.options["model"], str):  # a model object has its own address, which the file sets again
            given["model"] = self.choice.model
        if order.instructions is not None:
            given["instructions"] = order.instructions
        if order.agent.role:
            given["role"] = order.agent.role
        if order.engine is not None:
            open_engine(order.engine)  # an unknown name is refused before anything is asked
            given["engine"] = order.engine
        if limits := order.list_limits():
            given["limits"] = Limits(**limits, widens=tuple(limits))
        return given


def collect_agent_parts(options: "AgentOptions", workdir: str = os.curdir) -> AgentParts:
    """Collect the parts of the agent (model, options, notes) for `perdure run` in the folder `workdir`.

    Raises `ConfigError` for wrong options, and for a configuration file that cannot be used.
    """
    return _assemble(options, read_config(options, workdir), workdir)


def find_unmatched_rules(path: str, config: "Config") -> list[str]:
    """Return a warning for each rule of a configuration file that matches no tool of the agent in its folder.

    Code that the file names is not imported; then, and for a file that cannot be used here, there are none.
    """
    table = config.tables.permissions
    if table is None or config.tables.tools or config.tables.extensions.imports:
        return []
    tables = replace(config.tables, vault=None, memory=None, base_url="", engine="", store="memory:")
    try:
        parts = _assemble(AgentOptions(config=path, model="demo"), replace(config, tables=tables), config.workdir)
        agent = Agent[Any](**parts.options)
    except ConfigError:
        return []
    return [to_one_line(text) for text in describe_unmatched_rules(table.rules, agent)]


def resolve_store(options: "AgentOptions", workdir: str = os.curdir) -> str:
    """Return the store to use, from the options or the configuration file, without assembling the agent."""
    return _store_of(options, read_config(options, workdir))


def _assemble(wish: "AgentOptions", config: "Config | None", workdir: str) -> AgentParts:
    here = workdir if config is None or "workdir" not in config.given else config.workdir
    notes = _describe_config(config)
    roles, role = load_project_roles(wish, config, here, notes)
    choice = choose_model(wish.model, _suggest_model(config, role))
    has_room = wish.config is not None or not is_in_process_model(wish.previous_model or choice.model)
    has_coding = _has_coding_tools(wish, config, here, otherwise=has_room)
    trusted = check_folder_trust(here, notes if has_coding else [])
    if not trusted:  # then others may have written the instructions of its roles
        roles = [replace(each, labels=(UNTRUSTED_LABEL,)) for each in roles]
    parts: dict[str, Any] = {
        "model": choice.model,
        "tools": ()
        if _has_setting(config, "tools")
        else _choose_basic_tools(here, has_coding=has_coding, trusted=trusted),
        "compaction": Compaction(),
        "mentions": try_to_load(lambda: MentionSettings(here, trusted=trusted), "files cannot be mentioned", notes),
        "project": load_project_instructions(here, notes, trusted=trusted)
        if _is_enabled("project", wish, config, otherwise=has_room)
        else None,
        "extensions": build_long_context_extensions() if wish.context or (wish.context is None and has_room) else (),
    }
    if _is_enabled("skills", wish, config, otherwise=has_room):
        parts["skills"] = load_user_and_project_skills(here, notes)
    if config is not None:
        parts |= _options_from_file(wish, config, choice, trusted=trusted)
        if not _has_setting(config, "extensions"):
            named = (config.build_memory_extension(), config.build_mcp_extension())
            parts["extensions"] = [*parts["extensions"], *[each for each in named if each is not None]]
        origin = config.build_origin_extension(trusted=trusted)
        parts["extensions"] = [*parts["extensions"], *([] if origin is None else [origin])]
    store = _store_of(wish, config)
    if has_coding:
        coding = try_to_load(lambda: build_coding_extension(here, store, trusted=trusted), "coding", notes)
        parts["extensions"] = [*parts["extensions"], *([] if coding is None else [coding])]
    if wish.context or (wish.context is None and has_room):
        servers = _try_to_load_mcp_extension(here, config)
        parts["extensions"] = [*parts["extensions"], *([] if servers is None else [servers])]
    parts |= {"roles": roles, "store": store}
    allowed = tuple([parse_allow_option(each) for each in wish.allow])
    return AgentParts(choice=choice, options=parts, config=config, notes=tuple(notes), allowed=allowed)


def parse_allow_option(text: str) -> Rule:
    """Parse the value of `--allow`: a pattern for the tool's name, and in parentheses one for its target, if any.

    Raises `ConfigError` for any other text.
    """
    found = _ALLOWED.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"--allow {text!r}: give the name of a tool, or TOOL(TARGET), such as 'bash(git status)'")
    return allow(found[1], target=found[2] or "*")


def check_sandbox_for_yolo(extensions: Sequence[Extension]) -> None:
    """Raise `ConfigError` if commands of the agent would run without a sandbox, which `--yolo` requires."""
    if problem := describe_missing_sandbox(extensions):
        raise ConfigError(
            f"--yolo is for commands that run in a sandbox, and here is none: {problem}; use --allow for single tools"
        )


def _has_coding_tools(wish: "AgentOptions", config: "Config | None", here: str, *, otherwise: bool) -> bool:
    """Return True if the agent gets tools for files, search and git: as is wished, else in a repository."""
    if wish.coding is not None:
        return wish.coding
    is_wanted = otherwise if wish.context is None else wish.context
    return is_wanted and not _has_setting(config, "tools") and is_in_repository(here)


def _try_to_load_mcp_extension(here: str, config: "Config | None") -> "Extension | None":
    """Return the tools of MCP servers; `None` without any, and with a warning if their files cannot be used."""
    problems: list[str] = []
    servers = try_to_load(lambda: _load_mcp_extension(here, config), "MCP servers are left out", problems)
    for each in problems:  # no notes, which are not shown with --quiet and --json
        _log.warning("%s", each)
    return servers


def _load_mcp_extension(here: str, config: "Config | None") -> "Extension | None":
    """Return the tools of the user's MCP servers and of a trusted `.mcp.json`; `None` without any.

    Those of `perdure.toml` are not among them, nor servers of the same name.
    """
    from perdure._cli.services.mcp_files import build_mcp_servers, load_used_servers

    configured: set[str] = set() if config is None else {name for each in config.servers for name in each.tables}
    servers = [each for each in load_used_servers(here, config) if each.name not in configured]
    return replace(build_mcp_servers(*servers).extension, name="mcp_of_user") if servers else None


def _choose_basic_tools(here: str, *, has_coding: bool, trusted: bool) -> list[Tool[..., Any]]:
    """Return the tools that every agent of `perdure run` has; those for files only without better ones."""
    tools = basic_tools(here, trusted=trusted)
    return [each for each in tools if not has_coding or each.name not in {"read_text", "write_text"}]


# -- what the file says ------------------------------------------------------------------------------------------------


def _has_setting(config: "Config | None", name: str) -> bool:
    """Return True if the configuration file sets the key `name`, even to false."""
    return config is not None and name in config.given


def _is_enabled(name: str, wish: "AgentOptions", config: "Config | None", *, otherwise: bool) -> bool:
    if wish.context is not None:
        return wish.context
    return bool(getattr(config.tables, name)) if config is not None and _has_setting(config, name) else otherwise


def _options_from_file(wish: "AgentOptions", config: "Config", choice: ModelChoice, *, trusted: bool) -> dict[str, Any]:
    """Return the `Agent` options that the configuration file sets."""
    names = ["name", "description", "instructions", "limits", "settings", "role", "interactive"]
    set_alone = ("tools", "compaction", "extensions", "vault", "mentions", "engine")
    names += [name for name in set_alone if _has_setting(config, name)]
    names += ["model"] if choice == _configured_model(config) else []
    if wish.context is not False and not isinstance(config.tables.skills, bool) and config.tables.skills:
        names.append("skills")
    parts = config.build_options(names, trust=load_skill_trust(), trusted=trusted)
    if not config.tables.base_url:  # then the name is enough, and a name can be kept in the log
        parts.pop("model", None)
    return parts


def _configured_model(config: "Config") -> ModelChoice:
    return ModelChoice(config.tables.model, f"{config.path} names it")


def _suggest_model(config: "Config | None", role: Role | None) -> ModelChoice | None:
    if role is not None and role.model:
        return ModelChoice(role.model, f"role {role.name!r} names it")
    return _configured_model(config) if config is not None and config.tables.model else None


def _store_of(wish: "AgentOptions", config: "Config | None") -> str:
    if wish.store or config is None or not config.tables.store:
        return resolve_store_spec(wish.store)
    store: str = config.build_options(["store"])["store"]
    check_store_folder(store)
    return store


def _describe_config(config: "Config | None") -> list[str]:
    if config is None:
        return []
    told = "" if config.trusted else "; it is not trusted, and needs no trust"
    return [f"{config.path} is used{told}", *config.problems]
