"""Writes docs/reference from the docstrings of the package.

    python -m scripts.reference           write what is not current
    python -m scripts.reference --check   only say which pages are not current

Every name of `perdure.__all__` and `perdure.testing.__all__` is on the page of the module that it lives in; a module
that has no page here is an error. Beside them a page documents what people meet when they use those names.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import perdure
import perdure.stores
import perdure.testing
from perdure.core.event import EVENTS
from scripts.docstrings import Symbol, source_of

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
        ("perdure.agent", "perdure.session", "perdure.stream", "perdure.core.inbox"),
        ("perdure.override.Overrides", "perdure.shutdown.Shutdown"),
    ),
    Page(
        "runs.md",
        "Runs, outcomes and engines",
        "How a run ends, and what authors of engines see of it.",
        (
            "perdure.core.outcome",
            "perdure.core.run",
            "perdure.core.seam",
            "perdure.core.loop",
            "perdure.core.proceed",
            "perdure.output",
            "perdure.core.cache",
        ),
        ("perdure.core.mailbox.Mailbox", "perdure.core.fold.State", "perdure.core.cache.PrefixChange"),
    ),
    Page(
        "tools.md",
        "Tools",
        "What an agent can do: functions, raw JSON Schemas, and the box they come in.",
        ("perdure.core.tool", "perdure.core.tool_context", "perdure.core.toolbox"),
        ("perdure.core.tool.ToolOptions",),
    ),
    Page(
        "permissions.md",
        "Permissions",
        "Who decides about calls. The idea is in [concepts/permissions](../concepts/permissions.md).",
        ("perdure.core.permission",),
        ("perdure.core.permission.Rule", "perdure.core.permission.Grant", "perdure.core.event.Scope"),
    ),
    Page(
        "context.md",
        "What the model sees",
        "Project files, roles, prompts, skills, directives, compaction, previews and short forms of results.",
        (
            "perdure.context.compaction",
            "perdure.context.strategies",
            "perdure.context.project",
            "perdure.context.prompts",
            "perdure.context.role",
            "perdure.context.roles",
            "perdure.context.skills.skill",
            "perdure.context.skills.collection",
            "perdure.context.skills.discovery",
            "perdure.context.directives.hook",
            "perdure.context.directives.attachment",
        ),
        (
            "perdure.context.skills.discovery.skills_in",
            "perdure.context.skills.skill.Resource",
            "perdure.context.skills.trust.Trust",
            "perdure.context.skills.tools.skill_tools",
            "perdure.context.front_matter.read_front_matter",
            "perdure.context.directives.hook.Controls",
            "perdure.context.history.history_tools",
            "perdure.context.large_results.previewed",
            "perdure.context.summaries.summarised",
            "perdure.context.tokens.context_tokens",
        ),
    ),
    Page(
        "interaction.md",
        "What people are shown and asked",
        "Slots: what a tool shows and asks. How to use them is in [how-to/ask-people](../how-to/ask-people.md).",
        ("perdure.core.slot",),
        (
            "perdure.core.slot.Display",
            "perdure.core.slot.Line",
            "perdure.interaction.asked.Confirm",
            "perdure.interaction.asked.Choice",
            "perdure.interaction.asked.Choices",
            "perdure.interaction.asked.Option",
            "perdure.interaction.asked.Form",
            "perdure.interaction.asked.Custom",
            "perdure.interaction.shown.Words",
            "perdure.interaction.shown.Markdown",
            "perdure.interaction.shown.Table",
            "perdure.interaction.shown.Picture",
            "perdure.interaction.shown.Progress",
            "perdure.interaction.view.SlotView",
            "perdure.interaction.grant_file.GrantFile",
            "perdure.display.SessionDisplay",
        ),
    ),
    Page(
        "credentials.md",
        "Credentials",
        "Secrets that tools get and the model does not. See [how-to/credentials](../how-to/credentials.md).",
        ("perdure.credentials.wrapper",),
        (
            "perdure.credentials.vault.Vault",
            "perdure.credentials.vault.MemoryVault",
            "perdure.credentials.vault.EnvironmentVault",
            "perdure.credentials.vault.KeyringVault",
            "perdure.credentials.vault.first_of",
            "perdure.credentials.file_vault.FileVault",
            "perdure.credentials.secret.Secret",
            "perdure.credentials.redactor.Redactor",
            "perdure.credentials.scrub.Scrubber",
            "perdure.credentials.scrub.ScrubbedStream",
            "perdure.credentials.model.scrubbed_model",
        ),
    ),
    Page(
        "extensions.md",
        "Extensions and ready-made tools",
        "Bundles of what an agent can be given. See [how-to/extensions](../how-to/extensions.md).",
        ("perdure.extension",),
        (
            "perdure.extensions.large_results",
            "perdure.extensions.short_results",
            "perdure.extensions.history",
            "perdure.extensions.notebook",
            "perdure.toolkits.tasks.task_tools",
            "perdure.toolkits.tasks.Task",
            "perdure.toolkits.todo.todo_tools",
            "perdure.toolkits.todo.Todo",
            "perdure.toolkits.scratchpad.scratchpad_tools",
        ),
    ),
    Page(
        "subagents.md",
        "Agents that work for agents",
        "As a tool, in the background, in one's place. See [how-to/subagents](../how-to/subagents.md).",
        ("perdure.subagents.as_tool", "perdure.subagents.delegation"),
        ("perdure.subagents.as_tool.Assignment",),
    ),
    Page(
        "configuration.md",
        "Configuration, and agents as classes",
        "Agents that are described elsewhere. See [how-to/configuration](../how-to/configuration.md).",
        ("perdure.config", "perdure.configuring.fault", "perdure.class_agent"),
        ("perdure.config.Trusted", "perdure.mcp.server.McpServer"),
    ),
    Page(
        "limits.md",
        "Limits, stop conditions and guardrails",
        "What a run may use, when it ends, and what keeps it from going in circles.",
        ("perdure.core.stop",),
    ),
    Page(
        "budgets.md",
        "Budgets",
        "What several runs share. How to use it is in [how-to/budgets](../how-to/budgets.md).",
        ("perdure.core.ledger",),
        ("perdure.core.ledger.Reservation", "perdure.core.ledger.budgeted"),
    ),
    Page(
        "wrappers.md",
        "Wrappers",
        "A model made from a model, a tool made from a tool.",
        ("perdure.core.wrap",),
    ),
    Page(
        "messages.md",
        "Messages",
        "What is said: parts, messages, calls, results, usage.",
        ("perdure.core.message",),
    ),
    Page(
        "models.md",
        "Models",
        "Who answers: the seam, what is asked, what is known about a model.",
        ("perdure.core.model", "perdure.models"),
        (
            "perdure.core.model.ToolSpec",
            "perdure.models.openai_compatible",
            "perdure.models.register",
            "perdure.models.providers",
            "perdure.models.catalogue",
            "perdure.models.availability.Offer",
            "perdure.models.price_of",
            "perdure.models.set_price",
            "perdure.models.profile.Profile",
            "perdure.models.endpoint.Endpoint",
            "perdure.models.auth.Auth",
            "perdure.models.throttle.Throttle",
            "perdure.models.probe.probe",
            "perdure.models.probe.Learned",
        ),
    ),
    Page(
        "stores.md",
        "Stores",
        "Where sessions are kept: the seam, the stores that are here, what wraps them, and how they are looked after.",
        ("perdure.stores", "perdure.core.store"),
        (
            "perdure.core.store.Store",
            "perdure.core.store.Searchable",
            "perdure.core.store.Maintained",
            "perdure.core.store.StoreSize",
            "perdure.core.store.Immediate",
            "perdure.core.store.Grouped",
            "perdure.core.store.Foldable",
            "perdure.core.store.Lease",
            "perdure.stores.memory.MemoryStore",
            "perdure.stores.file.store.FileStore",
            "perdure.stores.sqlite.store.SqliteStore",
            "perdure.stores.postgres.store.PostgresStore",
            "perdure.stores.namespace.namespaced",
            "perdure.stores.namespace.derived",
            "perdure.stores.namespace.Derived",
            "perdure.stores.listener.listened",
            "perdure.stores.listener.Listener",
            "perdure.upkeep.prune",
            "perdure.upkeep.restore",
        ),
    ),
    Page(
        "replay.md",
        "Replay, export and import",
        "A kept session as a recording, and as a document. How to use it is in [how-to/replay](../how-to/replay.md).",
        ("perdure.replaying.replay", "perdure.replaying.diff", "perdure.transfer"),
        ("perdure.transfer.Prefix", "perdure.transfer.Recording", "perdure.transfer.read_document"),
    ),
    Page(
        "events.md",
        "Events",
        "Everything that happens, field by field. What comes when is in [concepts/events](../concepts/events.md).",
        ("perdure.core.event",),
        tuple([f"perdure.core.event.{event.__name__}" for event in EVENTS.values()]),
    ),
    Page(
        "watchers.md",
        "Watchers",
        "Ready-made functions to give to `Agent(watchers=[…])`.",
        ("perdure.tracing.mirror",),
        ("perdure.core.feed.Watcher",),
    ),
    Page(
        "errors.md",
        "Errors",
        "Everything that is raised on purpose. What goes wrong in a run is an outcome, and is not raised.",
        ("perdure.core.error",),
    ),
    Page(
        "testing.md",
        "Testing",
        "For tests of agents, tools, models and stores.",
        (
            "perdure.testing.cache",
            "perdure.testing.clock",
            "perdure.testing.contracts",
            "perdure.testing.contracts_model",
            "perdure.testing.recorder",
            "perdure.testing.reply",
            "perdure.testing.scripted",
        ),
        (
            "perdure.testing.replay.check_replay",
            "perdure.testing.replay.record",
            "perdure.testing.replay.Diverged",
        ),
    ),
)


class Unplaced(Exception):
    """A public name has no page."""


def homes() -> dict[str, list[str]]:
    """The public names by the module that they live in."""
    found: dict[str, list[str]] = {}
    for package in (perdure, perdure.testing):
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
        module = "perdure.testing" if module.startswith("perdure.testing") else "perdure"
    elif module.startswith("perdure.stores.") and symbol.name in perdure.stores.__all__:
        module = "perdure.stores"
    return f"from {module} import {symbol.name}"


def index(symbols: dict[str, list[Symbol]], public: dict[str, list[str]]) -> str:
    """Every public name, and where it is documented."""
    contents = [f"- [{page.title}]({page.file}): {page.about.partition('. ')[0].rstrip('.')}." for page in PAGES]
    parts = ["# Reference", NOTE, "\n".join(contents)]
    for title, package in (("perdure", perdure), ("perdure.testing", perdure.testing)):
        places = [
            (symbol.name, f"[{symbol.name}]({file}#{symbol.sort}-{symbol.name.lower()})")
            for file, several in symbols.items()
            for symbol in several
            if symbol.name in package.__all__ and symbol.name in public.get(symbol.module, ())
            if symbol.module.startswith("perdure.testing") == (package is perdure.testing)
        ]
        links = [link for _, link in sorted(places, key=lambda place: place[0].lower())]
        parts += [f"## Names of {title}", " ·\n".join(links)]
    parts.append("`perdure.__version__` is the version, a text.")
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
