"""Parsed options of `perdure run`, `resume` and `replay`; those about the agent are restored from the session's log.

The options about the agent are stored in the metadata of the prompt, so that a resumed run continues with the same
agent, and a replay uses the same agent.
"""

# ruff: noqa: PTH100 - pathlib would cost every start milliseconds
import os
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.log.fold import State
from perdure._core.values.jsonable import convert
from perdure._core.values.message import Message

METADATA: Final = "command_line"
"""Key in a prompt's metadata under which the options are stored."""

_POSTED_ORIGINS: Final = frozenset({"steering", "follow_up", "inbox"})
"""Origins of messages that can begin a run without a prompt."""


class _StoredOptions(Struct, frozen=True, kw_only=True):
    """Options about the agent that are stored in the metadata of a prompt."""

    context: bool | None = None
    """True to give the agent project instructions, skills and more tools; `None` lets the size of its model decide."""
    coding: bool | None = None
    """True to give the agent tools for files and commands; `None` to do so in a repository, for a large model."""
    config: str | None = None
    """Path of the configuration file; without it, the nearest `perdure.toml` is used."""
    no_config: bool = False
    """Use no configuration file."""


class AgentOptions(_StoredOptions, frozen=True, kw_only=True):
    """Command-line options that choose the agent, such as `--model`; for `None`, project files and defaults decide."""

    model: str | None = None
    """The model to ask, as `provider:model`."""
    role: str | None = None
    """Name of the agent's role."""
    store: str | None = None
    """The store that keeps sessions."""
    allow: tuple[str, ...] = ()
    """Tool calls that need no approval, as `TOOL` or `TOOL(TARGET)`."""
    previous_model: str = ""
    """The model of the run that is resumed: its context window decides when `context` is `None`."""

    def build_prompt_metadata(self, project: str = "") -> dict[str, Any]:
        """Return the metadata to store with a prompt: the project, and options that the log does not store elsewhere.

        It is there even if it is empty: it tells the prompts of the command line from those of other programs.
        """
        said = {
            "context": self.context,
            "coding": self.coding,
            "config": self.config and os.path.abspath(self.config),
            "no_config": self.no_config or None,
            "project": project or None,
        }
        return {METADATA: {name: each for name, each in said.items() if each is not None}}


class RunCommandOptions(Struct, frozen=True, kw_only=True):
    """All options of one `perdure run` or `perdure resume` command."""

    session_id: str | None = None
    """The session to use; `None` creates one."""
    prompt: str | None = None
    """The prompt; `None` if only the last run is to be finished."""
    resume: bool = False
    """Finish the last run first, if it was cut off."""
    unpark: bool = False
    """Finish the last run also if it was parked."""
    agent: AgentOptions = AgentOptions()
    """Options that choose the agent."""
    instructions: str | None = None
    """System instructions for this run."""
    engine: str | None = None
    """Name of the engine of this run; `None` for that of the configuration file."""
    max_turns: int | None = None
    """Limit on the model's replies in this run."""
    limit_tokens: int | None = None
    """Limit on the input and output tokens of this run."""
    limit_cost: float | None = None
    """Limit on the cost of this run, in US dollars."""
    limit_seconds: float | None = None
    """Limit on the duration of this run, without the time in which it waits for an answer."""
    limit_tool_calls: int | None = None
    """Limit on the tool calls of this run."""
    tools: tuple[str, ...] | None = None
    """Names of the only tools that are offered."""
    schema: dict[str, Any] | None = None
    """JSON Schema that the answer has to fit."""
    yolo: bool = False
    """Allow every tool call, provided that commands run in a sandbox."""
    as_json: bool = False
    quiet: bool = False
    raw: bool = False
    yes: bool = False
    """Allow every tool call."""
    later: bool = False
    """Leave questions open when there is no terminal to ask at."""
    trace: str | None = None
    """Path of the file to which a trace of the runs is written."""

    def list_limits(self) -> dict[str, Any]:
        """Return the limits that were given, by their names in `Limits`."""
        given = {
            "max_turns": self.max_turns,
            "token_budget": self.limit_tokens,
            "max_cost_usd": self.limit_cost,
            "timeout_seconds": self.limit_seconds,
            "max_tool_calls": self.limit_tool_calls,
            "allowed_tools": self.tools,
        }
        return {name: value for name, value in given.items() if value is not None}


def fill_missing_options(options: AgentOptions, state: State) -> AgentOptions:
    """Return the options, with each one that the user did not give taken from the last run in the session's `state`."""
    recorded = None if state.run is None else state.run.options.get("model")
    model = recorded if isinstance(recorded, str) else None  # a log of somebody else may have anything there
    prompt = _find_prompt(state)
    try:
        said = convert({} if prompt is None else prompt.metadata.get(METADATA, {}), _StoredOptions)
    except msgspec.ValidationError:  # it is not ours
        said = _StoredOptions()
    return replace(
        options,
        model=options.model or model,
        previous_model=model or "",
        context=said.context if options.context is None else options.context,
        coding=said.coding if options.coding is None else options.coding,
        config=said.config if options.config is None and not options.no_config else options.config,
        no_config=options.no_config or (said.no_config and options.config is None),
    )


def is_last_run_from_cli(state: State) -> bool:
    """Return True if the last run of a session answers a prompt of `perdure run`, and not of another program.

    A run that was begun without a prompt, as for a message that arrived, belongs with the last prompt before it.
    """
    prompt = _find_prompt(state)
    return prompt is not None and METADATA in prompt.metadata


def _find_prompt(state: State) -> Message | None:
    """Return the prompt of the session's last run; for a run that was begun without one, the last prompt before it."""
    before, added = state.messages[: state.first_message_index], state.messages[state.first_message_index :]
    if added and not _is_posted(added[0]):
        return next(filter(_is_prompt, added), None)
    return next(filter(_is_prompt, reversed(before)), None)


def _is_prompt(message: Message) -> bool:
    return message.role == "user" and not message.origin


def _is_posted(message: Message) -> bool:
    """Return True if a message was sent to the session, such as an inbox result, and is not part of a prompt."""
    return message.origin in _POSTED_ORIGINS
