"""What a command was asked to do, and what the log says of that later. Above: `run`, `resume`, `replay`, `drive.py`.

Below: `core`. What a person said about the agent stands in the metadata of the prompt, so that a run that was cut off
goes on with the same agent, and a replay is one of the same agent.
"""

# ruff: noqa: PTH100 - pathlib would cost every start milliseconds
import os
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure.core.fold import State

METADATA: Final = "command_line"
"""Where in the metadata of a prompt it is kept."""


class Wish(Struct, frozen=True, kw_only=True):
    """What a person says about the agent; what nobody says is left to the project, and to what there is."""

    model: str | None = None
    """Who is to answer."""
    role: str | None = None
    """Which role the agent has."""
    config: str | None = None
    """The configuration file, named; otherwise one is looked for."""
    context: bool | None = None
    """Whether the agent is told about the project, with skills and more tools; otherwise its model decides."""
    store: str | None = None
    """Where sessions are kept."""
    answered_by: str = ""
    """Who answered in the run that is taken up: that one's window decides."""

    @property
    def kept(self) -> dict[str, Any]:
        """What a log has to know besides the model and the role, which it knows anyway."""
        said = {"context": self.context, "config": self.config and os.path.abspath(self.config)}
        return {METADATA: known} if (known := {name: each for name, each in said.items() if each is not None}) else {}


class Order(Struct, frozen=True, kw_only=True):
    """What a command was asked to do."""

    session_id: str | None = None
    """Which session; a new one if none is named."""
    prompt: str | None = None
    """What to say; nothing if the last run is only to be finished."""
    resume: bool = False
    """Finish the last run first, if it was cut off."""
    wish: Wish = Wish()
    """Which agent is to do it."""
    instructions: str | None = None
    """What the model is told in this run before the conversation."""
    max_turns: int | None = None
    """After how many replies this run ends."""
    as_json: bool = False
    quiet: bool = False
    raw: bool = False
    yes: bool = False
    """Allow every call."""
    later: bool = False
    """Leave questions open where nobody can be asked."""


class _Said(Struct, frozen=True):
    """What a prompt says about the agent."""

    context: bool | None = None
    config: str | None = None


def as_before(wish: Wish, state: State) -> Wish:
    """The wish, with what was said when the last run of a session began; what is said now counts before that."""
    model = None if state.run is None else state.run.options.get("model")
    prompt = next((each for each in state.messages[state.first :] if each.role == "user" and not each.origin), None)
    try:
        said = msgspec.convert({} if prompt is None else prompt.metadata.get(METADATA, {}), _Said)
    except msgspec.ValidationError:  # it is not ours
        said = _Said()
    return replace(
        wish,
        model=wish.model or model,
        answered_by=model or "",
        context=said.context if wish.context is None else wish.context,
        config=said.config if wish.config is None else wish.config,
    )
