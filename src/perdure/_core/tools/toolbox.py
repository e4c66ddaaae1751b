"""A toolbox: the tools of an agent, by name."""

from collections.abc import Container, Iterable, Iterator
from typing import Any

from perdure._core.model.cache import PartHash, hash_request_part
from perdure._core.model.protocol import ToolSpec
from perdure._core.values.error import ConfigError

from .tool import Tool


class Toolbox:
    """Tools by unique name, in the order in which the model is sent them."""

    __slots__ = ("_specs", "_specs_hash", "_tools", "tool_needing_deps")

    def __init__(self, tools: Iterable[Tool[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool[..., Any]] = {}
        self._specs: tuple[ToolSpec, ...] | None = None
        self._specs_hash: PartHash | None = None
        self.tool_needing_deps: Tool[..., Any] | None = None
        """A tool that cannot do without `deps`; `None` if all can."""
        if isinstance(tools, str) or not isinstance(tools, Iterable):
            message = f"tools={tools!r}: give a list of tools"
            raise ConfigError(message)
        for each in tools:
            if not isinstance(each, Tool):
                raise ConfigError(_not_a_tool_message(each))
            if each.receiver is not None:
                message = f"tool {each.name!r} is an unbound method: get it from an object, as in `thing.{each.name}`"
                raise ConfigError(message)
            if each.name in self._tools:
                message = f"two tools are called {each.name!r}: give one of them another name with @tool(name=…)"
                raise ConfigError(message)
            self._tools[each.name] = each
            if each.needed_deps:
                self.tool_needing_deps = each

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tool descriptions sent to the model, in the order of listing; the same object until the tools change."""
        if self._specs is None:
            self._specs = tuple([each.spec for each in self._tools.values()])
        return self._specs

    @property
    def specs_hash(self) -> PartHash:
        """The hash of the tool descriptions that are sent to the model."""
        if self._specs_hash is None:
            self._specs_hash = hash_request_part(self.specs)
        return self._specs_hash

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools, in the order of listing."""
        return tuple(self._tools)

    def get(self, name: str) -> Tool[..., Any] | None:
        """Return the tool of that name, or `None`."""
        return self._tools.get(name)

    def with_tools(self, tools: Iterable[Tool[..., Any]]) -> "Toolbox":
        """Return a toolbox with these tools added."""
        return Toolbox([*self, *tools])

    def with_only(self, names: Iterable[str], later: Container[str] = ()) -> "Toolbox":
        """Return a toolbox with only these tools. Raises `ConfigError` for a name that is neither in it nor in
        `later`.
        """
        chosen = tuple(names)
        for name in chosen:
            if name not in self._tools and name not in later:
                message = f"there is no tool {name!r}; {self.suggest_names(name)}"
                raise ConfigError(message)
        return Toolbox([each for each in self if each.name in chosen])

    def suggest_names(self, name: str) -> str:
        """Return advice for a tool name that does not exist: similar names, and all names."""
        if not self._tools:
            return "there are no tools"
        import difflib

        near = difflib.get_close_matches(name.lower(), {known.lower(): known for known in self._tools}, 3, 0.5)
        names = sorted(
            [known for known in self._tools if known.lower() in near], key=lambda each: near.index(each.lower())
        )
        hint = f"did you mean {' or '.join(map(repr, names))}? " if names else ""
        return f"{hint}available: {', '.join(self._tools)}"

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._tools)})"


def _not_a_tool_message(value: object) -> str:
    if isinstance(getattr(value, "__func__", None), Tool):
        return f"{value!r} is not a tool: write @tool above @classmethod, not below it"
    if callable(value):
        return f"{value!r} is not a tool yet: mark it with @tool"
    return f"{value!r} is not a tool: use @tool on a function, or tool_from_schema(…)"
