"""Writes docs/reference from the docstrings of the package.

    python -m scripts.reference           write what is not current
    python -m scripts.reference --check   only say which pages are not current

Every name of `windlass.__all__` and `windlass.testing.__all__` is on the page of the module that it lives in; a module
that has no page here is an error. Beside them a page documents what people meet when they use those names.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import windlass
import windlass.stores
import windlass.testing
from scripts.docstrings import Symbol, source_of
from windlass.core.event import EVENTS

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
NOTE = "<!-- Written by `python -m scripts.reference`, from the docstrings. Not edited by hand. -->"


class Page(NamedTuple):
    """A page of the reference."""

    file: str
    title: str
    about: str
    modules: tuple[str, ...]
    """The public names of these modules are documented here."""
    also: tuple[str, ...] = ()
    """And these names, which are not public names of the package itself."""


PAGES = (
    Page(
        "agents.md",
        "Agents and sessions",
        "Describe an agent, open a session, run it, stream it, steer it, cancel it.",
        ("windlass.agent", "windlass.session", "windlass.stream", "windlass.core.inbox"),
        ("windlass.override.Overrides", "windlass.shutdown.Shutdown"),
    ),
    Page(
        "runs.md",
        "Runs, outcomes and engines",
        "How a run ends, and what authors of engines see of it.",
        (
            "windlass.core.outcome",
            "windlass.core.run",
            "windlass.core.seam",
            "windlass.core.loop",
            "windlass.core.proceed",
            "windlass.output",
            "windlass.core.cache",
        ),
        ("windlass.core.mailbox.Mailbox", "windlass.core.fold.State", "windlass.core.cache.PrefixChange"),
    ),
    Page(
        "tools.md",
        "Tools",
        "What an agent can do: functions, raw JSON Schemas, and the box they come in.",
        ("windlass.core.tool", "windlass.core.tool_context", "windlass.core.toolbox"),
        ("windlass.core.tool.ToolOptions",),
    ),
    Page(
        "permissions.md",
        "Permissions",
        "Who decides about calls. The idea is in [concepts/permissions](../concepts/permissions.md).",
        ("windlass.core.permission",),
        ("windlass.core.permission.Rule", "windlass.core.permission.Grant", "windlass.core.event.Scope"),
    ),
    Page(
        "context.md",
        "What the model sees",
        "Project files, roles, prompts, skills, directives, compaction, previews and short forms of results.",
        (
            "windlass.context.compaction",
            "windlass.context.strategies",
            "windlass.context.project",
            "windlass.context.prompts",
            "windlass.context.role",
            "windlass.context.roles",
            "windlass.context.skills.skill",
            "windlass.context.skills.collection",
            "windlass.context.skills.discovery",
            "windlass.context.directives.hook",
            "windlass.context.directives.attachment",
        ),
        (
            "windlass.context.skills.discovery.skills_in",
            "windlass.context.skills.skill.Resource",
            "windlass.context.skills.trust.Trust",
            "windlass.context.skills.tools.skill_tools",
            "windlass.context.front_matter.read_front_matter",
            "windlass.context.directives.hook.Controls",
            "windlass.context.history.history_tools",
            "windlass.context.large_results.previewed",
            "windlass.context.summaries.summarised",
            "windlass.context.tokens.context_tokens",
        ),
    ),
    Page(
        "interaction.md",
        "What people are shown and asked",
        "Slots: what a tool shows and asks. How to use them is in [how-to/ask-people](../how-to/ask-people.md).",
        ("windlass.core.slot",),
        (
            "windlass.core.slot.Display",
            "windlass.core.slot.Line",
            "windlass.interaction.asked.Confirm",
            "windlass.interaction.asked.Choice",
            "windlass.interaction.asked.Choices",
            "windlass.interaction.asked.Option",
            "windlass.interaction.asked.Form",
            "windlass.interaction.asked.Custom",
            "windlass.interaction.shown.Words",
            "windlass.interaction.shown.Markdown",
            "windlass.interaction.shown.Table",
            "windlass.interaction.shown.Picture",
            "windlass.interaction.shown.Progress",
            "windlass.interaction.view.SlotView",
            "windlass.interaction.grant_file.GrantFile",
            "windlass.display.SessionDisplay",
        ),
    ),
    Page(
        "credentials.md",
        "Credentials",
        "Secrets that tools get and the model does not. See [how-to/credentials](../how-to/credentials.md).",
        ("windlass.credentials.wrapper",),
        (
            "windlass.credentials.vault.Vault",
            "windlass.credentials.vault.MemoryVault",
            "windlass.credentials.vault.EnvironmentVault",
            "windlass.credentials.vault.KeyringVault",
            "windlass.credentials.vault.first_of",
            "windlass.credentials.file_vault.FileVault",
            "windlass.credentials.secret.Secret",
            "windlass.credentials.redactor.Redactor",
            "windlass.credentials.scrub.Scrubber",
            "windlass.credentials.scrub.ScrubbedStream",
            "windlass.credentials.model.scrubbed_model",
        ),
    ),
    Page(
        "extensions.md",
        "Extensions and ready-made tools",
        "Bundles of what an agent can be given. See [how-to/extensions](../how-to/extensions.md).",
        ("windlass.extension",),
        (
            "windlass.extensions.large_results",
            "windlass.extensions.short_results",
            "windlass.extensions.history",
            "windlass.extensions.notebook",
            "windlass.toolkits.tasks.task_tools",
            "windlass.toolkits.tasks.Task",
            "windlass.toolkits.todo.todo_tools",
            "windlass.toolkits.todo.Todo",
            "windlass.toolkits.scratchpad.scratchpad_tools",
        ),
    ),
    Page(
        "subagents.md",
        "Agents that work for agents",
        "As a tool, in the background, in one's place. See [how-to/subagents](../how-to/subagents.md).",
        ("windlass.subagents.as_tool", "windlass.subagents.delegation"),
        ("windlass.subagents.as_tool.Assignment",),
    ),
    Page(
        "configuration.md",
        "Configuration, and agents as classes",
        "Agents that are described elsewhere. See [how-to/configuration](../how-to/configuration.md).",
        ("windlass.config", "windlass.configuring.fault", "windlass.class_agent"),
        ("windlass.config.Trusted", "windlass.mcp.server.McpServer"),
    ),
    Page(
        "limits.md",
        "Limits, stop conditions and guardrails",
        "What a run may use, when it ends, and what keeps it from going in circles.",
        ("windlass.core.stop",),
    ),
    Page(
        "budgets.md",
        "Budgets",
        "What several runs share. How to use it is in [how-to/budgets](../how-to/budgets.md).",
        ("windlass.core.ledger",),
        ("windlass.core.ledger.Reservation", "windlass.core.ledger.budgeted"),
    ),
    Page(
        "wrappers.md",
        "Wrappers",
        "A model made from a model, a tool made from a tool.",
        ("windlass.core.wrap",),
    ),
    Page(
        "messages.md",
        "Messages",
        "What is said: parts, messages, calls, results, usage.",
        ("windlass.core.message",),
    ),
    Page(
        "models.md",
        "Models",
        "Who answers: the seam, what is asked, what is known about a model.",
        ("windlass.core.model", "windlass.models"),
        (
            "windlass.core.model.ToolSpec",
            "windlass.models.openai_compatible",
            "windlass.models.register",
            "windlass.models.providers",
            "windlass.models.catalogue",
            "windlass.models.availability.Offer",
            "windlass.models.price_of",
            "windlass.models.set_price",
            "windlass.models.profile.Profile",
            "windlass.models.endpoint.Endpoint",
            "windlass.models.auth.Auth",
            "windlass.models.throttle.Throttle",
            "windlass.models.probe.probe",
            "windlass.models.probe.Learned",
        ),
    ),
    Page(
        "stores.md",
        "Stores",
        "Where sessions are kept: the seam, the stores that are here, what wraps them, and how they are looked after.",
        ("windlass.stores", "windlass.core.store"),
        (
            "windlass.core.store.Store",
            "windlass.core.store.Searchable",
            "windlass.core.store.Maintained",
            "windlass.core.store.StoreSize",
            "windlass.core.store.Immediate",
            "windlass.core.store.Grouped",
            "windlass.core.store.Foldable",
            "windlass.core.store.Lease",
            "windlass.stores.memory.MemoryStore",
            "windlass.stores.file.store.FileStore",
            "windlass.stores.sqlite.store.SqliteStore",
            "windlass.stores.postgres.store.PostgresStore",
            "windlass.stores.namespace.namespaced",
            "windlass.stores.namespace.derived",
            "windlass.stores.namespace.Derived",
            "windlass.stores.listener.listened",
            "windlass.stores.listener.Listener",
            "windlass.upkeep.prune",
            "windlass.upkeep.restore",
        ),
    ),
    Page(
        "replay.md",
        "Replay, export and import",
        "A kept session as a recording, and as a document. How to use it is in [how-to/replay](../how-to/replay.md).",
        ("windlass.replaying.replay", "windlass.replaying.diff", "windlass.transfer"),
        ("windlass.transfer.Prefix", "windlass.transfer.Recording", "windlass.transfer.read_document"),
    ),
    Page(
        "events.md",
        "Events",
        "Everything that happens, field by field. What comes when is in [concepts/events](../concepts/events.md).",
        ("windlass.core.event",),
        tuple([f"windlass.core.event.{event.__name__}" for event in EVENTS.values()]),
    ),
    Page(
        "watchers.md",
        "Watchers",
        "Ready-made functions to give to `Agent(watchers=[…])`.",
        ("windlass.tracing.mirror",),
        ("windlass.core.feed.Watcher",),
    ),
    Page(
        "errors.md",
        "Errors",
        "Everything that is raised on purpose. What goes wrong in a run is an outcome, and is not raised.",
        ("windlass.core.error",),
    ),
    Page(
        "testing.md",
        "Testing",
        "For tests of agents, tools, models and stores.",
        (
            "windlass.testing.cache",
            "windlass.testing.clock",
            "windlass.testing.contracts",
            "windlass.testing.contracts_model",
            "windlass.testing.recorder",
            "windlass.testing.reply",
            "windlass.testing.scripted",
        ),
        (
            "windlass.testing.replay.check_replay",
            "windlass.testing.replay.record",
            "windlass.testing.replay.Diverged",
        ),
    ),
)


class Unplaced(Exception):
    """A public name has no page."""


def homes() -> dict[str, list[str]]:
    """The public names by the module that they live in."""
    found: dict[str, list[str]] = {}
    for package in (windlass, windlass.testing):
        for name in package.__all__:
            if name != "__version__":
                found.setdefault(getattr(package, name).__module__, []).append(name)
    return found


def pages() -> dict[str, str]:
    """Every file of the reference with its text."""
    public = homes()
    placed = {module for page in PAGES for module in page.modules}
    if unplaced := sorted(set(public) - placed):
        raise Unplaced(f"no page of scripts/reference.py documents the public names of {', '.join(unplaced)}")
    symbols = {page.file: symbols_of(page, public) for page in PAGES}
    written = {page.file: render(page, symbols[page.file], public) for page in PAGES}
    return {**written, "index.md": index(symbols, public)}


def symbols_of(page: Page, public: dict[str, list[str]]) -> list[Symbol]:
    """What a page documents: public names as they stand in their modules, then the types in their signatures."""
    found: list[Symbol] = []
    for module in page.modules:
        source = source_of(module)
        found += [source.symbol(name) for name in sorted(public.get(module, ()), key=source.place)]
    known = {symbol.name for symbol in found}
    also = [named(path) for path in page.also]
    aliases = [alias for module in page.modules for alias in source_of(module).aliases()]
    return found + [symbol for symbol in [*also, *aliases] if symbol.name not in known]


def named(path: str) -> Symbol:
    """A symbol by its full name."""
    module, _, name = path.rpartition(".")
    return source_of(module).symbol(name)


def render(page: Page, symbols: list[Symbol], public: dict[str, list[str]]) -> str:
    """A page."""
    parts = [f"# {page.title}", NOTE, page.about]
    for symbol in symbols:
        parts += [f"## {symbol.sort} {symbol.name}", f"`{import_of(symbol, public)}`", *symbol.text()]
    return "\n\n".join(parts) + "\n"


def import_of(symbol: Symbol, public: dict[str, list[str]]) -> str:
    """How to get at a name."""
    module = symbol.module
    if symbol.name in public.get(module, ()):
        module = "windlass.testing" if module.startswith("windlass.testing") else "windlass"
    elif module.startswith("windlass.stores.") and symbol.name in windlass.stores.__all__:
        module = "windlass.stores"
    return f"from {module} import {symbol.name}"


def index(symbols: dict[str, list[Symbol]], public: dict[str, list[str]]) -> str:
    """Every public name, and where it is documented."""
    contents = [f"- [{page.title}]({page.file}): {page.about.partition('. ')[0].rstrip('.')}." for page in PAGES]
    parts = ["# Reference", NOTE, "\n".join(contents)]
    for title, package in (("windlass", windlass), ("windlass.testing", windlass.testing)):
        places = [
            (symbol.name, f"[{symbol.name}]({file}#{symbol.sort}-{symbol.name.lower()})")
            for file, several in symbols.items()
            for symbol in several
            if symbol.name in package.__all__ and symbol.name in public.get(symbol.module, ())
            if symbol.module.startswith("windlass.testing") == (package is windlass.testing)
        ]
        links = [link for _, link in sorted(places, key=lambda place: place[0].lower())]
        parts += [f"## Names of {title}", " ·\n".join(links)]
    parts.append("`windlass.__version__` is the version, a text.")
    return "\n\n".join(parts) + "\n"


def stale() -> dict[str, str | None]:
    """The files that are not as they should be, with their right text; `None` for one that should not be there."""
    right = pages()
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    changed: dict[str, str | None] = {file: text for file, text in right.items() if there.get(file) != text}
    return {**changed, **dict.fromkeys(set(there) - set(right))}


def main() -> int:
    """Write the pages, or say which are not current."""
    parser = argparse.ArgumentParser(description="Writes docs/reference from the docstrings of the package.")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a page is not current")
    check: bool = parser.parse_args().check
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        changes = stale()
    except Unplaced as problem:
        print(f"reference: {problem}", file=sys.stderr)
        return 1
    for file, text in sorted(changes.items()):
        if not check and text is None:
            (FOLDER / file).unlink()
        elif not check:
            (FOLDER / file).write_text(text or "", encoding="utf-8")
        print(f"reference: docs/reference/{file} {'is not current' if check else 'renewed'}")
    return int(check and bool(changes))


if __name__ == "__main__":
    raise SystemExit(main())
