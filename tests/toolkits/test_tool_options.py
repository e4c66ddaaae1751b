"""The options of the tools that come with the package: what a call may do, beside which calls, and with which secrets.

A tool's author relies on none of them, and every user does: an effect decides what is repeated after a crash,
`parallel` what two calls can spoil, `permission` what a person is asked, `credentials` where a secret can end up.
"""

from dataclasses import dataclass
from typing import Any

from perdure import Agent, Tool, tool
from perdure.context import Compaction
from perdure.testing import MemoryFiles, ScriptedBrowser, ScriptedModel, ScriptedWeb
from perdure.tools import (
    basic_tools,
    browser_tools,
    coding,
    delegation,
    history,
    large_results,
    memory,
    notebook,
    tool_search,
    web_fetch_tool,
    web_search_tool,
)

OPTIONS = (
    *("effect", "permission", "action", "parallel", "abortable", "timeout_seconds", "retries", "terminate"),
    *("asks_first", "credentials", "labels", "sends", "isolate"),
)
NO_SECRETS = {"credentials": False}
ALONE = {"parallel": False, **NO_SECRETS}
READS = {"effect": "read"}
REPEATED = {"effect": "idempotent"}
PAGE = {"action": "browse", "parallel": False, "timeout_seconds": 90.0}
FOREIGN = {"labels": ("untrusted",), **NO_SECRETS}
PRIVATE = {"labels": ("private",)}
OF_OTHERS = {"labels": ("private", "untrusted")}
SENDS = {"sends": True, "labels": ("untrusted",)}
EXPECTED: list[tuple[str, dict[str, Any]]] = [
    ("now calculate", READS),
    ("read_text", {**READS, **PRIVATE}),
    ("read list glob grep git_status git_diff git_log git_show", {**READS, **OF_OTHERS}),
    ("write_text", {"permission": True, "action": "write", **NO_SECRETS}),
    ("write", {**REPEATED, "permission": True, **ALONE}),
    ("edit", {**REPEATED, "permission": True, "action": "write", **OF_OTHERS, **ALONE}),
    ("git_commit", {"permission": True, "action": "commit", **OF_OTHERS, **ALONE}),
    ("ask_user plan", {"asks_first": True, **ALONE}),
    ("todo_list read_scratchpad load_tools hand_over_to_next", {**READS, **ALONE}),
    ("update_tasks todo_append todo_update write_scratchpad compact_conversation", {**REPEATED, **ALONE}),
    ("clear_agent_history remember_entity", {**REPEATED, **ALONE}),
    ("search_history read_history read_result grep_result wait_for_agents list_agents", {**READS, **NO_SECRETS}),
    ("remember remember_episode cancel_agent", {**REPEATED, **NO_SECRETS}),
    ("recall", {**READS, **PRIVATE, **NO_SECRETS}),
    ("forget", {**REPEATED, "permission": True, **NO_SECRETS}),
    ("browser_snapshot browser_scroll browser_screenshot", {**READS, **PAGE, **FOREIGN}),
    ("browser_back", {**PAGE, **FOREIGN}),
    ("browser_close", {**REPEATED, **PAGE, **NO_SECRETS}),
    ("browser_type", {"permission": True, **PAGE, **SENDS}),
    ("browser_navigate browser_click", {"permission": True, **PAGE, **SENDS, **NO_SECRETS}),
    ("browser_select browser_press browser_download", {"permission": True, **PAGE, **SENDS, **NO_SECRETS}),
    ("web_fetch", {**READS, "permission": True, "timeout_seconds": 60.0, **SENDS, **NO_SECRETS}),
    ("web_search", {**READS, "timeout_seconds": 60.0, **SENDS, **NO_SECRETS}),
    ("by_text by_fields delegate", {**REPEATED, "asks_first": True, **NO_SECRETS}),
]
"""Names of tools, and their options that differ from those of a function with `@tool` alone."""


@dataclass
class Errand:
    """What a subagent is given in fields."""

    place: str


def list_tools(folder: Any) -> list[Tool[..., Any]]:
    """Return the tools that need no other package, and no program beside git."""
    other = Agent(ScriptedModel(), name="other")
    agent = Agent(
        ScriptedModel(),
        tools=[*basic_tools(folder), other.as_tool(name="by_text"), other.as_tool(name="by_fields", input=Errand)],
        extensions=[
            coding(folder, shell=False),
            notebook(todos=True),
            history(),
            large_results(),
            memory(folder / "memory.db", entities=True, episodes=True),
            tool_search(),
            delegation([other]),
        ],
        handoffs=[Agent(ScriptedModel(), name="next")],
    )
    browser = browser_tools(ScriptedBrowser({}), files=MemoryFiles())
    web = [web_fetch_tool(ScriptedWeb()), web_search_tool(ScriptedWeb())]
    return [*agent.tools, Compaction().build_compact_tool(), *browser, *web]


def test_every_tool_has_the_options_that_its_users_rely_on(tmp_path):
    async def plain() -> None:
        """Do nothing."""

    usual = tool(plain)
    found = {
        each.name: {name: value for name in OPTIONS if (value := getattr(each, name)) != getattr(usual, name)}
        for each in list_tools(tmp_path)
    }
    assert found == {name: options for names, options in EXPECTED for name in names.split()}
