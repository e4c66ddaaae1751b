"""Selection of the tools that the model is sent, and storage of the names of those that it has loaded."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .event import LOADED_TOOLS_NAME, ValueKept
from .toolbox import Toolbox

if TYPE_CHECKING:
    from .fold import State
    from .run import Run
    from .run_function_types import ToolSelector


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
