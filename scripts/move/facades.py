"""The public modules: each has a docstring, a table of names by the modules that define them, and nothing else."""

from collections import defaultdict
from pathlib import Path

from .front_door import Public

DOCSTRINGS = {
    "perdure": """Perdure: an agent runtime whose sessions survive crashes.

    from perdure import Agent, tool

For everybody: what builds, runs and reads agents. Other modules beside this one have what fewer people need; everything
below a name with an underscore is internal. Names are imported when they are first used.
""",
    "perdure.events": """Events: everything that happens in a run, for whoever shows or records it.

    from perdure.events import TextDelta, ToolFinished

`Entry` is an event with its place in the log. Their order is described in `docs/concepts/events.md`.
""",
    "perdure.tools": (
        "Ready tools and bundles of tools, for agents that work with files, commands, the web and other agents."
    ),
    "perdure.permissions": (
        "What decides whether a tool call runs, and the secrets that tools get: for authors of rules, gates and vaults."
    ),
    "perdure.people": "What people are asked and shown: for tools that ask, and for screens.",
    "perdure.context": (
        "What the model is sent: project files, prompts, skills, roles, commands, and the history of the conversation."
    ),
    "perdure.tracing": ("Watchers that print, trace and export what happens in runs, for users who watch and debug."),
    "perdure.evals": "Graders, evaluations and reviews: what judges the work of agents.",
    "perdure.background": (
        "Work without a person: goals, schedules, and the shutdown that leaves runs for the next process."
    ),
    "perdure.testing": """Test doubles for agents, tools, models and stores; contract suites for your own, and replays.

As a plugin of pytest it has the fixture `replayed`: `pytest_plugins = ["perdure.testing"]`.
""",
    "perdure.models": (
        "Models: opened by name, wrapped, and written by yourself. For users, and for authors of providers."
    ),
    "perdure.stores": (
        "Stores of sessions: opened by name, maintained, and written by yourself. For operators, and for "
        "authors of stores."
    ),
    "perdure.engines": (
        "Engines, which decide how turns and tool calls follow each other: for users, and for authors of their own."
    ),
    "perdure.hosts": (
        "Places where tools do their work, and the protocols of such places: for users, and for authors of backends."
    ),
    "perdure.mcp": "MCP: tools of servers for agents, and agents for clients.",
}
"""What the public modules say of themselves; these are all there are."""

EXPORT = '''\
"""The front door: modules whose names are imported when they are first used, at no cost before."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from sys import modules


def export(
    facade: str, names_by_module: Mapping[str, Sequence[str]]
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a public module, from its names by their modules."""
    homes = {name: module for module, names in names_by_module.items() for name in names}
    public = sorted(homes)

    def get_name(name: str) -> object:
        """Import a name, and keep it, so that its next use does not come here."""
        module = homes.get(name)
        if module is None:
            raise AttributeError(f"module {facade!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"perdure{module}"), name)
        vars(modules[facade])[name] = value
        return value

    return public, get_name, lambda: public
'''
"""The module by which each of them imports its names."""


def write_facades(names: list[Public], root: Path) -> None:
    """Write the public modules. Raises `SystemExit` for one that has no docstring here."""
    folder = root / "src" / "perdure"
    homes: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for each in names:
        homes[each.facade][each.module.removeprefix("perdure")].append(each.name)
    if unknown := homes.keys() - DOCSTRINGS.keys():
        raise SystemExit(f"move: {min(unknown)!r} has no docstring in {Path(__file__).name}")
    (folder / "_facade.py").write_text(EXPORT, "utf-8")
    for facade, modules in homes.items():
        path = folder / f"{facade.partition('.')[2] or '__init__'}.py"
        path.write_text(write_facade(facade, modules), "utf-8")


def write_facade(facade: str, modules: dict[str, list[str]]) -> str:
    """Return the text of a public module."""
    rows = [f'    "{module}": ({write_names(modules[module])}),\n' for module in sorted(modules)]
    return (
        f'"""{DOCSTRINGS[facade]}"""\n\nfrom ._facade import export\n\n'
        f"NAMES_BY_MODULE = {{\n{''.join(rows)}}}\n"
        '"""The public names, by the module that defines them."""\n\n'
        "__all__, __getattr__, __dir__ = export(__name__, NAMES_BY_MODULE)\n"
    )


def write_names(names: list[str]) -> str:
    """Return names as the inside of a tuple."""
    quoted = [f'"{name}"' for name in sorted(names)]
    return ", ".join(quoted) + ("," if len(quoted) == 1 else "")
