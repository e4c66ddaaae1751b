"""The tools that a run offers its model: those selected to be sent, and those added while the run goes on."""

import logging
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from perdure._core.tools.tool import Tool
from perdure._core.tools.toolbox import Toolbox
from perdure._core.values.error import ConfigError
from perdure._core.values.event import ADDED_TOOLS_NAME, LOADED_TOOLS_NAME, ValueKept
from perdure._core.values.jsonable import convert

if TYPE_CHECKING:
    from perdure._core.log.fold import State

    from .run import Run
    from .spec import ToolSelector


ToolScope: TypeAlias = Literal["process", "run", "session"]
"""How long a tool that was added is offered: until the run ends (over a resume or not), or in all later runs too."""

SPARE = "spare"
"""The place of a tool that is one of the agent's `spare_tools`."""

logger = logging.getLogger("perdure")


class AddedTool(Struct, frozen=True):
    """The record of a tool that was added to a run: its name, where to find it again, and how long it is offered."""

    name: str
    place: str
    """`spare`, or the module and the variable that has it, as `module:variable`."""
    scope: ToolScope
    agent: str
    """The agent whose run it was added to."""
    run_id: str


def resolve_tools(tools: Iterable[Tool[..., Any] | str], spare: Toolbox) -> list[Tool[..., Any]]:
    """Convert a list of tools and names to tools: each name is looked up among the agent's `spare_tools`.

    Raises `ConfigError` for an unknown name.
    """
    return [_get_spare_tool(each, spare) if isinstance(each, str) else each for each in tools]


def _get_spare_tool(name: str, spare: Toolbox) -> Tool[..., Any]:
    tool = spare.get(name)
    if tool is None:
        raise ConfigError(f"add_tools({name!r}): no spare tool has this name; {spare.suggest_names(name)}")
    return tool


def build_added_tool_records(run: "Run", tools: Iterable[Tool[..., Any]], scope: ToolScope) -> list[AddedTool]:
    """Build the records that store tools added to a run. Raises `ConfigError` if a restart could not find one again."""
    if scope == "process":
        return []
    spare, agent = run.spec.spare_tools, run.agent_name
    return [AddedTool(each.name, _locate_tool(each, spare), scope, agent, run.run_id) for each in tools]


def _locate_tool(tool: Tool[..., Any], spare: Toolbox) -> str:
    """Return where a later process can find a tool. Raises `ConfigError` if the tool exists in this process only."""
    if spare.get(tool.name) is tool:
        return SPARE
    module = tool.source.partition(":")[0]
    for variable, value in list(getattr(sys.modules.get(module), "__dict__", {}).items()):
        if value is tool:
            return f"{module}:{variable}"
    raise ConfigError(
        f"add_tools({tool!r}): it could not be found again after a restart: list it in Agent(spare_tools=[…]), define "
        "it at the top level of a module, or add it with scope='process', for as long as this process has the run"
    )


def build_added_tools_event(run: "Run", added: Sequence[AddedTool]) -> ValueKept:
    """Build the event that stores the added tools: the new ones, and the earlier ones that are still offered."""
    before = [each for each in _read_added_tools(run.state) if _is_offered(each, each.agent, run.run_id)]
    names = {(each.name, each.agent) for each in added}
    kept = [*[each for each in before if (each.name, each.agent) not in names], *added]
    return ValueKept(ADDED_TOOLS_NAME, msgspec.to_builtins(kept), run_id=run.run_id, path=run.path)


def find_added_tools(state: "State", agent: str, run_id: str, spare: Toolbox) -> list[Tool[..., Any]]:
    """Return the tools that, by the log, were added to this run or session, as far as this process can find them."""
    return [
        tool
        for each in _read_added_tools(state)
        if _is_offered(each, agent, run_id) and (tool := _find_tool(each, spare)) is not None
    ]


def _read_added_tools(state: "State") -> list[AddedTool]:
    try:
        return convert(state.kept_values.get(ADDED_TOOLS_NAME, []), list[AddedTool])
    except msgspec.ValidationError:  # its content was erased on request
        return []


def _is_offered(added: AddedTool, agent: str, run_id: str) -> bool:
    return added.agent == agent and (added.scope == "session" or added.run_id == run_id)


def _find_tool(added: AddedTool, spare: Toolbox) -> Tool[..., Any] | None:
    module, _, variable = added.place.partition(":")
    found: Any = spare.get(added.name) if added.place == SPARE else getattr(sys.modules.get(module), variable, None)
    if isinstance(found, Tool) and cast("Tool[..., Any]", found).name == added.name:
        return cast("Tool[..., Any]", found)
    logger.warning("the tool %r that was added to the session is not there any more (%s)", added.name, added.place)
    return None


class ToolSelection:
    """Chooses the tools that the model is sent, and keeps the choice until the tools or the loaded names change."""

    __slots__ = ("_loaded", "_offered", "_toolbox")

    def __init__(self) -> None:
        self._toolbox: Toolbox | None = None
        self._loaded: Sequence[str] = ()
        self._offered = Toolbox()

    def select(self, toolbox: Toolbox, selectors: "Sequence[ToolSelector]", state: "State") -> Toolbox:
        """Return the tools that the selectors choose; the same object as long as nothing changes."""
        loaded = list_loaded_tools(state)
        if toolbox is not self._toolbox or loaded is not self._loaded:
            self._toolbox, self._loaded, self._offered = toolbox, loaded, toolbox
            for select in selectors:
                self._offered = select(self._offered, loaded)
        return self._offered


def list_loaded_tools(state: "State") -> Sequence[str]:
    """Return the names of the tools that the model has loaded, in order; none if the stored names were erased."""
    loaded: Sequence[str] | None = state.kept_values.get(LOADED_TOOLS_NAME)
    return loaded or ()


async def store_loaded_tools(run: "Run", names: Iterable[str]) -> None:
    """Store the names of tools that the model has loaded, so that they are sent to it from the next turn on."""
    before = list_loaded_tools(run.state)
    new = [each for each in dict.fromkeys(names) if each not in before and each in run.toolbox]
    if new:
        await run.emit(ValueKept(LOADED_TOOLS_NAME, [*before, *new], run_id=run.run_id, path=run.path))
        run.announce_tools(new)
