"""Planning tools, skills and agents as tools of Open Agent Loops, with our names."""

from typing import get_args

import msgspec
import pytest

from perdure import Agent, Budget, ConfigError, tool
from perdure.context import Resource, Skill, Skills, skill_tools
from perdure.events import SkillLoaded, SubagentFinished, SubagentStarted, ToolFinished, ToolsChanged, ValueKept
from perdure.models import Price
from perdure.testing import Recorder, ScriptedModel, call, calls
from perdure.tools import RETRY_LIMIT, MemoryValues, TodoItem, TodoStatus, parse_todos, scratchpad_tools, todo_tools
from tests.coming_from.shows import shows


async def texts_of(tools, *script, session=None, **options):
    """The texts of the results of calls that are made one after the other."""
    agent = Agent(ScriptedModel(*script, "Done."), tools=tools, guardrails=(), **options)
    outcome = await (session or agent.session("demo")).run("Go.")
    return [each.text for message in outcome.new_messages for each in message.tool_results]


@shows(
    "open-agent-loops",
    "todoListTools",
    'tool."todo_append"',
    'tool."todo_list"',
    'tool."todo_update"',
    "TodoItem",
    "TodoStatus",
    "TODO_STATUSES",
    "formatTodoList",
)
async def test_an_agent_keeps_a_list_of_things_to_do_in_the_log():
    recorder = Recorder()
    tools = todo_tools()
    assert [each.name for each in tools] == ["todo_append", "todo_list", "todo_update"]
    statuses = get_args(TodoStatus)
    assert set(statuses) == {"pending", "in_progress", "done", "cancelled", "failed"}
    script = [call("todo_append", id=name, content=f"Do {name}") for name in statuses]
    script += [call("todo_update", id=name, status=name) for name in statuses]
    script += [call("todo_update", id="failed", status="in_progress"), call("todo_list", include_completed=True)]
    agent = Agent(ScriptedModel(*script, "Done."), tools=tools, guardrails=(), watchers=[recorder])
    session = agent.session("demo")
    outcome = await session.run("Go.")
    todos = parse_todos(await session.kept("todos"))
    assert todos[0] == TodoItem(id="pending", content="Do pending", status="pending", retries=0)
    assert [each.status for each in todos] == ["pending", "in_progress", "done", "cancelled", "in_progress"]
    assert todos[-1].retries == 1
    header, *lines = outcome.messages[-2].tool_results[0].text.splitlines()
    assert "5 on the list" in header
    for count in ("1 pending", "2 in_progress", "1 done", "1 cancelled"):
        assert count in header
    assert len(lines) == 5
    assert "retried" in lines[-1]
    assert not any("retried" in line for line in lines[:-1])
    assert len(recorder.of(ValueKept)) == 10  # once for each change
    fork = await session.fork("other")
    assert parse_todos(await fork.kept("todos")) == todos


@shows("open-agent-loops", "RETRY_LIMIT")
async def test_after_too_many_retries_the_agent_is_told_to_escalate():
    again = [call("todo_update", id="a", status=status) for _ in range(RETRY_LIMIT) for status in ("failed", "pending")]
    texts = await texts_of(todo_tools(), call("todo_append", id="a", content="Dig"), *again)
    assert ["escalate" in text for text in texts[2::2]] == [False] * (RETRY_LIMIT - 1) + [True]


@shows("open-agent-loops", "TodoStore", "InMemoryTodoStore", "Scratchpad", "InMemoryScratchpad")
async def test_lists_and_notes_can_lie_in_a_store_of_your_own():
    values = MemoryValues()
    tools = [*todo_tools(values), *scratchpad_tools(values)]
    await texts_of(
        tools, call("todo_append", id="a", content="Dig"), call("write_scratchpad", content="Under the tree.")
    )
    assert [each.content for each in parse_todos(values.load("todos"))] == ["Dig"]
    texts = await texts_of(tools, call("todo_list"), call("read_scratchpad"))  # another agent, the same store
    assert "Dig" in texts[0]
    assert texts[1] == "Under the tree."
    saved: dict[str, object] = {}

    class Mine:
        async def load(self, name):
            return saved.get(name)

        async def save(self, name, value):
            saved[name] = value

    await texts_of(todo_tools(Mine()), call("todo_append", id="b", content="Fill"))
    assert [each.id for each in parse_todos(saved["todos"])] == ["b"]


@shows("open-agent-loops", "scratchpadTools", 'tool."read_scratchpad"', 'tool."write_scratchpad"')
async def test_a_page_of_notes_is_read_and_overwritten_and_lies_in_the_log():
    tools = scratchpad_tools()
    assert [each.name for each in tools] == ["read_scratchpad", "write_scratchpad"]
    script = [
        call("read_scratchpad"),
        call("write_scratchpad", content="First."),
        call("write_scratchpad", content="Second."),
        call("read_scratchpad"),
    ]
    agent = Agent(ScriptedModel(*script, "Done."), tools=tools, guardrails=())
    session = agent.session("demo")
    outcome = await session.run("Go.")
    results = [each.text for message in outcome.messages for each in message.tool_results]
    assert (results[0], results[3]) == ("(empty)", "Second.")
    assert await session.kept("scratchpad") == "Second."


# -- skills ------------------------------------------------------------------------------------------------------------


@tool(effect="read")
def weigh(item: str) -> str:
    """Weigh something."""
    return "1 kg"


def make_skills():
    pack = Skill(
        name="pack",
        description="How to pack.",
        body="Pack the bag.",
        tools=(weigh,),
        resources={"list.md": Resource(lambda: "Socks.", "What to take.")},
    )
    return Skills([pack, Skill(name="sail", description="How to sail.", body="Hoist it.")])


@shows(
    "open-agent-loops",
    "Skill",
    "Skill.name",
    "Skill.description",
    "Skill.instructions",
    "Skill.tools",
    "SkillResource",
    "SkillRegistry",
    "SkillRegistry.resolve",
    "skillTool",
    'tool."skill"',
    "skillResourceTool",
    'tool."skill_resource"',
)
async def test_a_skill_is_disclosed_in_three_stages():
    skills, recorder = make_skills(), Recorder()
    skill = skills.get("pack")
    assert (skill.name, skill.description, skill.body) == ("pack", "How to pack.", "Pack the bag.")
    with pytest.raises(ConfigError, match="pack, sail"):
        skills.get("cook")
    assert [each.name for each in skill_tools(skills)] == ["skill", "skill_resource"]
    model = ScriptedModel(
        call("skill", name="pack"),
        call("skill_resource", skill="pack", name="list.md"),
        call("weigh", item="bag"),
        "Packed.",
    )
    outcome = await Agent(model, skills=skills, watchers=[recorder]).run("Pack.")
    first = model.requests[0]
    for text in ("pack", "How to pack.", "sail", "How to sail."):
        assert text in first.instructions
    assert "Pack the bag." not in first.instructions
    assert [each.name for each in first.tools] == ["skill", "skill_resource"]
    assert [each.name for each in model.requests[1].tools] == ["skill", "skill_resource", "weigh"]
    loaded, resource, weighed = [each.text for message in outcome.messages for each in message.tool_results]
    assert "Pack the bag." in loaded
    assert "list.md" in loaded
    assert "Socks." not in loaded
    assert "Socks." in resource
    assert weighed == "1 kg"
    assert [event.name for event in recorder.of(SkillLoaded)] == ["pack"]
    assert [event.added for event in recorder.of(ToolsChanged)] == [("weigh",)]


# -- several agents ----------------------------------------------------------------------------------------------------


class Route(msgspec.Struct):
    start: str
    end: str


class Distance(msgspec.Struct):
    km: int


@shows("open-agent-loops", "agentAsTool", "AgentAsToolOptions")
async def test_an_agent_is_a_tool_with_typed_input_and_output_that_shares_the_budget_of_its_caller():
    recorder = Recorder()
    below = ScriptedModel(call("final_answer", km=460), price=Price(input_usd=1.0, output_usd=1.0))
    guide = Agent(below, name="guide", instructions="Measure.", description="Knows distances.")
    given = guide.as_tool(name="measure", description="Measures a route.", input=Route, output=Distance)
    model = ScriptedModel(
        call("measure", start="Oslo", end="Bergen"), "460 km.", price=Price(input_usd=1.0, output_usd=1.0)
    )
    budget = Budget(token_budget=1_000_000)
    agent = Agent(model, tools=[given], watchers=[recorder], budget=budget)
    session = agent.session("demo")
    outcome = await session.run("How far?")
    spec = model.requests[0].tools[0]
    assert (spec.name, spec.description) == ("measure", "Measures a route.")
    assert set(spec.parameters["properties"]) == {"start", "end"}
    assert msgspec.json.decode(outcome.messages[2].tool_results[0].text, type=Distance) == Distance(460)
    (asked,) = below.requests
    assert (asked.instructions, len(asked.messages)) == ("Measure.", 1)
    assert "Bergen" in asked.messages[0].text
    (started,), (finished,) = recorder.of(SubagentStarted), recorder.of(SubagentFinished)
    assert (started.name, finished.status) == ("measure", "done")
    assert started.child in {each.event.path for each in await session.store.read("demo")}
    assert outcome.usage.input_tokens == 30  # of both agents
    assert outcome.cost_usd == pytest.approx(45 / 1_000_000)
    assert budget.remaining()[0] == 1_000_000 - 45


@shows("open-agent-loops", "agentAsTool")
async def test_an_agent_that_works_as_a_tool_goes_on_after_a_crash():
    looks = []

    @tool(effect="read")
    def look(place: str) -> str:
        """Look."""
        looks.append(place)
        return f"seen {place}"

    below = ScriptedModel(calls(call("look", place="left"), call("look", place="right")), "Nothing.", "Nothing.")
    given = Agent(below, name="scout", tools=[look]).as_tool()
    agent = Agent(ScriptedModel(call("scout", task="Look."), "All clear.", "All clear."), tools=[given])
    await agent.session("demo").run("Go.")
    entries = await agent.store.read("demo")
    ended = [place for place, each in enumerate(entries, 1) if isinstance(each.event, ToolFinished) and each.event.path]
    crashed = await agent.session("demo").fork("crashed", at=ended[-1])
    outcome = await crashed.resume()
    assert (outcome.text, looks) == ("All clear.", ["left", "right"])
