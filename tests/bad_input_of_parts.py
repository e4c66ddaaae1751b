"""Rows for `test_bad_input.py`: what the model sees, who is asked, and bundles of all that."""

from typing import Any, NamedTuple

from perdure import (
    Agent,
    ConfigError,
    Extension,
    Middleware,
    PerdureError,
    SessionNotFound,
    agent_of,
    load_config,
    tool,
    tools_of,
)
from perdure.background import Goal, pursue_goal, resume_goal
from perdure.context import (
    BufferMemory,
    Command,
    Compaction,
    CompositeMemory,
    LongTermMemory,
    MemoryScope,
    MentionSettings,
    Project,
    Prompts,
    Rewrite,
    Role,
    ShortCircuit,
    Skill,
    Skills,
    VectorMemory,
    WindowMemory,
    load_roles,
    load_skills,
)
from perdure.engines import autonomous, chain_of_thought, planner, reflect, register_engine, until
from perdure.evals import Grade
from perdure.mcp import CatalogueEntry, McpCatalogue, McpServer, McpServers
from perdure.permissions import credentialed
from perdure.testing import ScriptedModel
from perdure.tools import delegation, orchestrator, subagent

# mypy: ignore-errors

MODEL = ScriptedModel("Hello.", repeat_last=True)


class Bad(NamedTuple):
    """A call that cannot work."""

    call: Any
    says: tuple[str, ...]
    """What its error must say: what was wrong, and what to do."""
    error: type[PerdureError] = ConfigError


class Never(NamedTuple):
    """The reason why a name cannot be given bad input."""

    reason: str


def bad(call: Any, *says: str, error: type[PerdureError] = ConfigError) -> Bad:
    return Bad(call, says, error)


@tool
def knot(name: str) -> str:
    """Tie a knot."""
    return name


class Untitled:
    """Has no model."""


AGENT_ROWS = [
    bad(lambda: Agent(MODEL, extensions=5), "extensions=5", "a list"),
    bad(lambda: Agent(MODEL, extensions=["x"]), "extensions='x'", "Extension("),
    bad(lambda: Agent(MODEL, compaction=5), "compaction=5", "Compaction("),
    bad(lambda: Agent(MODEL, project="."), "project='.'", "Project("),
    bad(lambda: Agent(MODEL, skills=["x"]), "['x']", "load_skills("),
    bad(lambda: Agent(MODEL, roles=["x"]), "roles='x'", "Role("),
    bad(lambda: Agent(MODEL, role="mate"), "'mate'", "no roles"),
    bad(lambda: Agent(MODEL, role="mat", roles=[Role("mate", "Be brief.")]), "'mat'", "'mate'"),
    bad(lambda: Agent(MODEL, commands=["x"]), "commands='x'", "Command("),
    bad(lambda: Agent(MODEL, commands=[Command("a", print), Command("a", print)]), "/a", "another name"),
    bad(lambda: Agent(MODEL, mentions="."), "mentions='.'", "MentionSettings("),
    bad(lambda: Agent(MODEL, handoffs=["x"]), "handoffs='x'", "Agent("),
    bad(lambda: Agent(MODEL, vault={"a": "b"}), "vault={'a': 'b'}", "EnvironmentVault("),
    bad(lambda: Agent(MODEL, interactive="no"), "interactive='no'", "True or False"),
    bad(lambda: Agent(MODEL).session("s", role="mate"), "'mate'", "no roles"),
    bad(lambda: Agent(MODEL).as_tool(name="a b"), "'a b'", "letters"),
]

SESSION_ROWS = [
    bad(lambda: Agent(MODEL).session("s").run("go", role=5), "role=5", "str"),
    bad(lambda: Agent(MODEL).session("s").run("go", role="mate"), "'mate'", "no roles"),
    bad(lambda: Agent(MODEL).session("s").skill("x"), "'x'", "Agent(skills=", error=PerdureError),
    bad(lambda: Agent(MODEL, skills=Skills([])).session("s").skill("x"), "'x'", "available"),
    bad(lambda: Agent(MODEL).session("s").compact(), "no compaction", "Compaction()", error=PerdureError),
    bad(lambda: Agent(MODEL).session("s").configure(model=5), "5 is not a model", "give a name"),
    bad(lambda: Agent(MODEL).session("s").configure(model="nope:x"), "'nope'"),
    bad(lambda: Agent(MODEL).session("s").configure(role="mate"), "'mate'", "no roles"),
    bad(lambda: Agent(MODEL).session("s").kept(""), "name=''", "non-empty text"),
    bad(lambda: Agent(MODEL).session("s").explain("x", {}), "'x'", "no tools"),
    bad(lambda: Agent(MODEL, tools=[knot]).session("s").explain("knot", {}), "name", "missing"),
]

PARTS_TABLE = {
    # -- engines -------------------------------------------------------------------------------------------------------
    "register_engine": [
        bad(lambda: register_engine("", print), "name=''", "non-empty text"),
        bad(lambda: register_engine("mine", "react"), "factory='react'", "function"),
        bad(lambda: register_engine("react", print), "name='react'", "choose a name"),
    ],
    "planner": [bad(lambda: planner(max_tasks=0), "max_tasks=0", "1 or more")],
    "reflect": [
        bad(lambda: reflect(max_reflections=0), "max_reflections=0", "1 or more"),
        bad(lambda: reflect(acceptance_score="8"), "acceptance_score='8'", "number"),
    ],
    "autonomous": [bad(lambda: autonomous(finish_tool="a b"), "'a b'", "letters")],
    "chain_of_thought": [bad(lambda: chain_of_thought(prompt=""), "prompt=''", "non-empty text")],
    "passthrough": Never("it takes nothing"),
    # -- memory --------------------------------------------------------------------------------------------------------
    "BufferMemory": [bad(lambda: BufferMemory(0), "max_messages=0", "1 or more")],
    "WindowMemory": [bad(lambda: WindowMemory(max_turns=0), "max_turns=0", "1 or more")],
    "CompositeMemory": [
        bad(lambda: CompositeMemory("x"), "shapes=('x',)", "functions"),
        bad(lambda: CompositeMemory(BufferMemory(), strategy="last"), "strategy='last'", "'first'"),
    ],
    "VectorMemory": [bad(lambda: VectorMemory(print), "embedder=", "async def embed(texts)")],
    "LongTermMemory": [
        bad(lambda: LongTermMemory("m.db", user=5), "user=5", "text"),
        bad(lambda: LongTermMemory("m.db", also_read="ann"), "also_read='ann'", "MemoryScope("),
        bad(lambda: LongTermMemory("m.db", recency_weight=2), "recency_weight=2", "1"),
    ],
    "MemoryScope": [bad(lambda: MemoryScope(user="a\nb"), "user=", "line breaks")],
    "Embedder": Never("a protocol, which embedders follow"),
    "MemoryHit": Never("a value of ours: searches make it"),
    "MemoryImportReport": Never("a value of ours: imports make it"),
    "MemoryRecord": Never("a value of ours: stored memories are checked by `remember` and imports"),
    # -- goals and graders ---------------------------------------------------------------------------------------------
    "Evidence": Never("a value that graders are given"),
    "Grade": [
        bad(lambda: Grade(passed=1), "passed=1", "True or False"),
        bad(lambda: Grade(passed=True, score=2), "score=2", "from 0 to 1"),
        bad(lambda: Grade(passed=True, feedback=None), "feedback=None", "text"),
    ],
    "Goal": [
        bad(lambda: Goal(""), "objective=''", "non-empty text"),
        bad(lambda: Goal("x", max_iterations=0), "max_iterations=0", "1 or more"),
        bad(lambda: Goal("x", token_budget=0.5), "token_budget=0.5", "whole number"),
        bad(lambda: Goal("x", max_cost_usd=0), "max_cost_usd=0", "above zero"),
        bad(lambda: Goal("x", items=["a"] * 9), "items=", "at most 8"),
        bad(lambda: Goal("x", budget=3), "'budget'", "'token_budget'"),
    ],
    "pursue_goal": [
        bad(lambda: pursue_goal(5, Agent(MODEL)), "goal=5", "Goal("),
        bad(lambda: pursue_goal("x", MODEL), "maker=", "Agent("),
        bad(lambda: pursue_goal("x", Agent(MODEL), grader="pytest"), "'pytest'", "give a function"),
        bad(lambda: pursue_goal("x", Agent(MODEL), goal_id="mine"), "goal_id='mine'", "'goal-'"),
    ],
    "resume_goal": [
        bad(lambda: resume_goal("", Agent(MODEL)), "goal_id=''", "non-empty text"),
        bad(lambda: resume_goal("goal-x", Agent(MODEL)), "'goal-x'", "perdure goal list", error=SessionNotFound),
    ],
    "until": [
        bad(lambda: until("pytest"), "'pytest'", "give a function"),
        bad(lambda: until(bool, max_rounds=0), "max_rounds=0", "1 or more"),
        bad(lambda: until(lambda _: True, max_rounds=0), "max_rounds=0", "1 or more"),
    ],
    "McpServer": [
        bad(lambda: McpServer(name="a b", command="x"), "name='a b'", "letters"),
        bad(lambda: McpServer(name="a"), "command=''", "non-empty text"),
        bad(lambda: McpServer(name="a", transport="http", url="ftp://x"), "url=", "https://"),
        bad(lambda: McpServer(name="a", command="x", permission="no"), "permission='no'", "True or False"),
        bad(lambda: McpServer(name="a", command="x", effects={"t": "none"}), "'none'", "at_most_once"),
        bad(lambda: McpServer(name="a", command="x", effects=5), "effects=5", "by the names"),
        bad(lambda: McpServer(name="a", command="x", include="get_*"), "include=", "a list of patterns"),
        bad(lambda: McpServer(name="a", command="x", idle_seconds=-1), "idle_seconds=-1", "from 0 on"),
    ],
    "CatalogueEntry": [
        bad(lambda: CatalogueEntry(server="git", description="x"), "server='git'", "McpServer("),
        bad(lambda: CatalogueEntry(server=McpServer(name="a", command="x"), description=""), "description=''", "text"),
        bad(
            lambda: CatalogueEntry(server=McpServer(name="a", command="x"), description="x", tags="y"),
            "tags='y'",
            "a list of texts",
        ),
    ],
    "McpCatalogue": [
        bad(lambda: McpCatalogue("git"), "'git'", "CatalogueEntry("),
        bad(lambda: McpCatalogue(policy="ask"), "policy='ask'", "interactive"),
        bad(lambda: McpCatalogue(policy="defer", choose=5), "choose=5", "function"),
        bad(lambda: McpCatalogue(choose=print), "policy='interactive'", "policy='defer'"),
    ],
    "McpServers": [
        bad(lambda: McpServers("git"), "'git'", "McpServer("),
        bad(lambda: McpServers(headers=5), "headers=5", "function"),
    ],
    "Extension": [
        bad(lambda: Extension(name=""), "name=''", "non-empty text"),
        bad(lambda: Extension(name="x", tools="shell"), "tools='shell'", "a list"),
        bad(lambda: Extension(name="x", tools=[print]), "tools=", "Tool("),
        bad(lambda: Extension(name="x", agents=[5]), "agents=5", "str"),
        bad(lambda: Extension(name="x", lifespan=5), "lifespan=5", "a function"),
        bad(lambda: Extension(name="x", reminders=["now"]), "reminders=['now']", "functions"),
    ],
    "Compaction": [
        bad(lambda: Compaction(at_fraction=2), "at_fraction=2", "from 0 to 1"),
        bad(lambda: Compaction(at_fraction=0), "at_fraction=0", "above 0"),
        bad(lambda: Compaction(at_turns="x"), "at_turns='x'", "whole number"),
        bad(lambda: Compaction(model="demo"), "model='demo'", "model object"),
        bad(lambda: Compaction(instructions=5), "instructions=5", "text"),
        bad(lambda: Compaction(strategy="x"), "strategy='x'", "a function"),
    ],
    "keep_recent": Never("a strategy: it is called by a compaction"),
    "Project": [
        bad(lambda: Project(5), "workdir=5", "a folder"),
        bad(lambda: Project("no-such-folder"), "'no-such-folder'", "exists"),
    ],
    "Prompts": [bad(lambda: Prompts("no-such-folder", "v1"), "'no-such-folder'", "cannot be read")],
    "Role": [
        bad(lambda: Role("", "x"), "name=''", "non-empty text"),
        bad(lambda: Role("mate", 5), "instructions=5", "non-empty text"),
    ],
    "load_roles": [bad(lambda: load_roles(5), "directory=5", "a folder")],
    "Skill": [
        bad(lambda: Skill(name="A B", description="x", body="y"), "'A B'", "release-notes"),
        bad(lambda: Skill(name="a", description="", body="y"), "description=''", "non-empty text"),
    ],
    "Skills": [
        bad(lambda: Skills(["x"]), "'x'", "Skill("),
        bad(lambda: Skills([]).get("x"), "'x'", "available"),
    ],
    "load_skills": [bad(lambda: load_skills(5), "workdir=5", "non-empty text")],
    "Command": [
        bad(lambda: Command("a b", print), "'a b'", "a letter"),
        bad(lambda: Command("a", 5), "handler=5", "a function"),
    ],
    "CommandContext": Never("a value that the runtime makes and hands out"),
    "Rewrite": [bad(lambda: Rewrite(5), "text=5", "non-empty text")],
    "ShortCircuit": [bad(lambda: ShortCircuit(5), "answer=5", "assistant(")],
    "MentionSettings": [
        bad(lambda: MentionSettings(5), "workdir=5", "a directory"),
        bad(lambda: MentionSettings(".", max_bytes="5"), "max_bytes='5'", "whole number"),
    ],
    "agent_of": [bad(lambda: agent_of(Untitled()), "Untitled", "provider:model")],
    "tools_of": [bad(lambda: tools_of(Untitled), "Untitled", "Untitled()")],
    "load_config": [
        bad(lambda: load_config(5), "5", "name the file"),
        bad(lambda: load_config("no-such-file.toml"), "no-such-file.toml", "cannot be read"),
    ],
    "Config": Never("it is made by load_config"),
    "credentialed": [
        bad(lambda: credentialed(5, {}), "tool=5", "@tool"),
        bad(lambda: credentialed(knot, 5), "vault=", "EnvironmentVault("),
    ],
    "subagent": [
        bad(lambda: subagent("a b", "x", print), "'a b'", "letters"),
        bad(lambda: subagent("a", "x", 5), "factory=5", "function"),
    ],
    "delegation": [
        bad(lambda: delegation([]), "agents"),
        bad(lambda: delegation(["x"]), "'x'", "Agent("),
        bad(lambda: delegation([Agent(MODEL), Agent(MODEL)]), "'agent'", "another name"),
    ],
    "orchestrator": [bad(lambda: orchestrator("x", [Agent(MODEL)]), "'x'", "Agent(")],
    "NotAnswered": Never("an error: it is raised by us, and takes any words"),
    "Middleware": [
        bad(lambda: Middleware(name="a"), "name='a'", "give at least one of run, turn and tool"),
        bad(lambda: Middleware(name="a", run=5), "run=5", "give a function"),
        bad(lambda: Middleware(name=5, run=print), "name=5", "text"),
    ],
    "CommandFailed": Never("an error: it is raised by us, and takes any words"),
    "BadConfig": Never("an error: it is raised by us, and takes any words"),
    "SubagentContext": Never("a value that the runtime makes and hands out"),
    "Explanation": Never("a value that the runtime makes and hands out"),
    "Showable": Never("a class to derive from"),
    "Askable": Never("a class to derive from"),
}
