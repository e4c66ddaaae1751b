"""docs/concepts/events.md says of every event what the code does, and draws the order that real runs have."""

import ast
import asyncio
import re

import pytest

from perdure.events import EVENTS
from tests.architecture.source import modules
from tests.docs.event_order import CRASHES, RUNS, draw
from tests.docs.pages import ROOT, blocks_of

PAGE = ROOT / "docs" / "concepts" / "events.md"
TEXT = PAGE.read_text(encoding="utf-8")
TREES = {
    match[1]: re.sub(r"\s+# .*$", "", block.text.rstrip("\n"), flags=re.MULTILINE)
    for block in blocks_of(PAGE)
    if (match := re.search(r"<!-- tree: ([\w-]+) -->", block.comment))
}
NAMES = {event.__name__: event for event in EVENTS.values()}

ELSEWHERE = {
    "Glue": """loop_start turn_start message_start text_delta message_end tool_start tool_end turn_end loop_end error
        retry guardrail auto_continue""",
    "Open Agent Loops": """agent_start turn_start reasoning_delta text_delta message message_injected tool_start
        tool_end agent_end""",
    "Glove": """text_delta tool_use model_response_complete model_response tool_use_result subagent_invoked
        subagent_completed token_consumption compaction_start compaction_end hook_invoked skill_invoked""",
    "AgentLIB": """run:start run:end step:start step:end step:reasoning model:request model:response tool:before
        tool:after memory:read memory:write cancel error planner:step agent:invoke agent:completed agent:step
        step:summary finished ctx.emit""",
}
"""The events of the systems that people come from."""


def section(title: str) -> str:
    """What a page says under a heading, up to the next one."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#+ |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"{PAGE.name} has no heading {title!r}"
    return found[2]


def rows(text: str) -> list[list[str]]:
    """The rows of the tables in a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rules = {place for place, row in enumerate(cells) if set("".join(row)) == {"-"}}
    return [row for place, row in enumerate(cells) if place not in rules and place + 1 not in rules]


def kinds() -> dict[str, str]:
    """Each event of the tables under "All kinds", and whether it is kept."""
    start, end = TEXT.index("## All kinds"), TEXT.index("## The order")
    return {row[0].strip("`"): row[1] for row in rows(TEXT[start:end])}


# -- the kinds ---------------------------------------------------------------------------------------------------------


def test_every_kind_is_in_the_tables_once():
    assert sorted(kinds()) == sorted(NAMES)


def test_the_tables_say_what_is_kept():
    actual = {name: "critical" if event.critical else "yes" if event.durable else "no" for name, event in NAMES.items()}
    assert kinds() == actual


def test_every_kind_is_made_somewhere():
    made = {
        node.func.id
        for module in modules()
        if not module.place.startswith("perdure/_testing/")
        for node in module.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert set(NAMES) - made == set()


# -- the order ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
async def test_a_run_has_the_order_that_is_drawn(name):
    async with asyncio.timeout(30):
        assert draw(await RUNS[name]()) == TREES[name]


@pytest.mark.parametrize("name", CRASHES)
async def test_a_run_that_was_cut_off_has_the_order_that_is_drawn(name, tmp_path):
    async with asyncio.timeout(30):
        assert draw(await CRASHES[name](tmp_path)) == TREES[name]


def test_every_drawing_belongs_to_a_run():
    assert set(TREES) == {*RUNS, *CRASHES}


# -- the other systems -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ELSEWHERE)
def test_every_event_of_another_system_has_its_counterpart(system):
    table = {re.findall(r"`([^`]+)`", row[0])[0]: row[1] for row in rows(section(system))}
    assert sorted(table) == sorted(ELSEWHERE[system].split())
    for name, ours in table.items():
        assert set(re.findall(r"`(\w+)`", ours)) & set(NAMES), f"{name}: {ours!r} names no event of ours"


def test_no_event_is_named_that_does_not_exist():
    named = re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", TEXT[TEXT.index("## All kinds") :])
    assert sorted(set(named) - set(NAMES)) == []
