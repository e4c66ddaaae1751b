"""Tool search: the model is sent a catalogue of its tools, a line for each, and loads those that it needs.

A loaded tool is sent with every later request of the session. Tools that are not loaded can be called all the same, as
by a program or by a model that remembers them: they are tools of the run, and permissions and limits apply.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any, Final

from msgspec.structs import replace

from perdure._core.run.calling_run import get_run_of_call
from perdure._core.run.toolset import store_loaded_tools
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool, tool
from perdure._core.tools.toolbox import Toolbox
from perdure._core.values.error import ToolError

from .code.stubs import build_stubs

LOAD_TOOL: Final = "load_tools"
MAX_LINE: Final = 100
"""Length of the description of a tool in the catalogue."""
MAX_SIGNATURES: Final = 20_000
"""Length of the signatures in a result. With more of them it has names alone: the definitions are sent anyway."""
_HANDOFF_PREFIX: Final = "hand_over_to_"
_NAME_WEIGHT: Final = 3
_WORD: Final = re.compile(r"[a-z]+|[0-9]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DESCRIPTION: Final = """\
Load tools, so that you can call them from your next message on. Give the names of tools in the catalogue, or a query: \
then the tools that match it best are loaded. Load all that you need at once."""


class ToolSearch:
    """Chooses which of an agent's tools are sent to the model, and searches the others."""

    def __init__(self, threshold: int, always: Collection[str], max_found: int, *, catalogue: bool) -> None:
        self._threshold = threshold
        self._always = frozenset(always)
        self._max_found = max_found
        self._has_catalogue = catalogue

    def select_tools(self, tools: Toolbox, loaded: Sequence[str]) -> Toolbox:
        """Return the tools that the model is sent: those that always are, then the loaded ones in their order.

        With no more tools than the threshold all are sent, without `load_tools`.
        """
        listed = self._list_searchable(tools)
        if len(listed) <= self._threshold:
            return Toolbox([each for each in tools if each.name != LOAD_TOOL])
        names = {each.name for each in listed}
        chosen = [each for each in tools if each.name not in names]
        described = [self._describe(each, listed) if each.name == LOAD_TOOL else each for each in chosen]
        return Toolbox([*described, *[found for name in loaded if name in names and (found := tools.get(name))]])

    def _describe(self, load_tool: Tool[..., Any], listed: Sequence[Tool[..., Any]]) -> Tool[..., Any]:
        """Return `load_tools` with the catalogue in its description. It does not change when tools are loaded."""
        if not self._has_catalogue:
            return replace(load_tool, description=f"{_DESCRIPTION}\n\nThere are {len(listed)} tools to search.")
        return replace(load_tool, description=f"{_DESCRIPTION}\n\nThe catalogue:\n{build_catalogue(listed)}")

    def _list_searchable(self, tools: Iterable[Tool[..., Any]]) -> list[Tool[..., Any]]:
        return [each for each in tools if not self._is_always_sent(each)]

    def _is_always_sent(self, each: Tool[..., Any]) -> bool:
        is_fixed = each.name == LOAD_TOOL or each.terminate or each.name.startswith(_HANDOFF_PREFIX)
        return is_fixed or each.name in self._always

    def build_tool(self) -> Tool[..., Any]:
        """Return the tool `load_tools`."""

        async def load_tools(
            context: ToolContext[Any],
            names: Annotated[list[str], "Names of tools"] = [],  # noqa: B006 - never changed
            query: Annotated[str, "What the tools should do, in a few words"] = "",
        ) -> str:
            searchable = Toolbox(self._list_searchable(get_run_of_call(context).toolbox))
            found = self._find_tools(searchable, names, query)
            await store_loaded_tools(get_run_of_call(context), [each.name for each in found])
            return _describe_loaded(found)

        return tool(load_tools, description=_DESCRIPTION, effect="read", parallel=False, credentials=False)

    def _find_tools(self, searchable: Toolbox, names: Sequence[str], query: str) -> list[Tool[..., Any]]:
        """Return the tools of these names, then those that match the query best. Raises `ToolError` if none does."""
        unknown = [each for each in names if each not in searchable]
        if unknown:
            near = [each.name for each in search_tools(searchable, " ".join(unknown), self._max_found)]
            hint = f"Did you mean {', '.join(near)}?" if near else "Try a query."
            raise ToolError(f"no tool to load is called {', '.join(unknown)}. {hint}")
        if not names and not query.strip():
            raise ToolError("give names, or a query")
        found = search_tools(searchable, query, self._max_found) if query.strip() else []
        if not names and not found:
            raise ToolError(f"no tool matches {query!r}: try other words")
        named = [each for name in names if (each := searchable.get(name)) is not None]
        return list({each.name: each for each in (*named, *found)}.values())


def _describe_loaded(found: Sequence[Tool[..., Any]]) -> str:
    prompts = [each.prompt for each in found if each.prompt]
    signatures = build_stubs({each.name: each for each in found})
    shown = [signatures] if len(signatures) <= MAX_SIGNATURES else []
    return "\n\n".join([f"Loaded: {', '.join([each.name for each in found])}.", *shown, *prompts])


def build_catalogue(tools: Iterable[Tool[..., Any]]) -> str:
    """Return a line for each tool: its name, and the first line of its description."""
    return "\n".join([f"- {each.name}: {_first_line(each)}".rstrip(": ") for each in tools])


def _first_line(each: Tool[..., Any]) -> str:
    line = next(iter(each.description.strip().splitlines()), "")
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…"


# -- search ------------------------------------------------------------------------------------------------------------


def search_tools(tools: Iterable[Tool[..., Any]], query: str, most: int) -> list[Tool[..., Any]]:
    """Return at most `most` tools that match a query best; rare words count more, and words in a tool's name most."""
    wanted = set(_split_words(query))
    counted = [(each, _count_words(each)) for each in tools]
    spread = Counter([word for _, words in counted for word in words if word in wanted])
    weights = {word: math.log(1 + len(counted) / number) for word, number in spread.items()}
    scores = [
        (sum([weights[word] * words[word] for word in weights if word in words]), each) for each, words in counted
    ]
    ranked = sorted([pair for pair in scores if pair[0] > 0], key=lambda pair: -pair[0])
    return [each for _, each in ranked[:most]]


def _count_words(each: Tool[..., Any]) -> dict[str, float]:
    """Return the words of a tool, each with its weight: more for the name, less for what is repeated."""
    parameters = " ".join(each.parameters.json_schema.get("properties", {}))
    counts = Counter(_split_words(f"{each.description} {parameters}"))
    words = {word: 1 + math.log(number) for word, number in counts.items()}
    for word in _split_words(each.name):
        words[word] = words.get(word, 0.0) + _NAME_WEIGHT
    return words


def _split_words(text: str) -> list[str]:
    """Return the words of a text or a name such as `listOpenIssues`, in lower case and without a plural s."""
    words: list[str] = _WORD.findall(_HUMP.sub(" ", text).lower())
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words]  # noqa: PLR2004 - as "bus"
