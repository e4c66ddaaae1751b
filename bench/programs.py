"""Code mode and tool search: what a program costs over its calls, and what many tools cost the prompt.

The CPU of the interpreter's processes is counted: they are this process's children.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure import Agent, Outcome, Tool, tool
from perdure.engines import Run
from perdure.testing import ScriptedModel, call, calls
from perdure.tools import code_mode, tool_from_schema, tool_search

from .measure import Effort, Figure

CALLS: Final = 10
TOOLS: Final = 500
BUDGET_MS: Final = 1.0
IN_A_ROW: Final = "\n".join([f"a{n} = await add(n={n})" for n in range(CALLS)]) + "\n[a0, a9]"
AT_ONCE: Final = f"import asyncio\nawait asyncio.gather(*[add(n=n) for n in range({CALLS})])"
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@tool(effect="read")
async def add(n: int) -> int:
    """Add."""
    return n


async def _call_in_a_row(run: Run) -> Outcome[Any]:
    """The same calls one after the other, by an engine."""
    for n in range(CALLS):
        await run.call_tool("add", {"n": n})
    return run.outcome("done")


def build_agents() -> dict[str, Agent[Any]]:
    """The agents that make ten calls, by the way in which they do."""
    at_once = calls(*[call("add", n=n) for n in range(CALLS)])

    def scripted(reply: Any) -> ScriptedModel:
        return ScriptedModel(lambda request: "done" if request.messages[-1].role == "tool" else reply, repeat_last=True)

    return {
        "calls at once": Agent(scripted(at_once), tools=[add]),
        "calls in a row": Agent(scripted("done"), tools=[add], engine=_call_in_a_row),
        "program at once": Agent(scripted(call("run_program", code=AT_ONCE)), tools=[add], extensions=[code_mode()]),
        "program in a row": Agent(scripted(call("run_program", code=IN_A_ROW)), tools=[add], extensions=[code_mode()]),
    }


def _read_children_seconds() -> float:
    """Return the CPU seconds of the children of this process, in steps of a hundredth."""
    seconds = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            seconds += (int(fields[11]) + int(fields[12])) / _TICKS
    return seconds


async def _measure_ms(run: Callable[[], Awaitable[object]], number: int) -> tuple[float, float]:
    """Return the milliseconds of CPU of one run, in this process and in its children."""
    children, began = _read_children_seconds(), time.process_time()
    for _ in range(number):
        await run()
    own = time.process_time() - began
    return own / number * 1e3, (_read_children_seconds() - children) / number * 1e3


async def measure_programs(effort: Effort) -> dict[str, tuple[float, float]]:
    """Return, for each agent, the best milliseconds of CPU of a run: here, and in the interpreter's process."""
    number, numbers = max(20, effort.calls // 10), count()
    found: dict[str, tuple[float, float]] = {}
    for name, agent in build_agents().items():
        async with agent:

            async def run(agent: Agent[Any] = agent) -> None:
                await agent.session(f"s{next(numbers)}").run("Go")

            readings = [await _measure_ms(run, number) for _ in range(max(2, effort.repeats // 3))]
            found[name] = min(readings, key=sum)
    return found


def build_tools() -> list[Tool[..., Any]]:
    """Many tools, as those of several servers."""
    schema = {
        "type": "object",
        "properties": {
            name: {"type": "string", "description": f"The {name} of the item, as the service calls it."}
            for name in ("id", "owner", "title", "state", "labels")
        },
        "required": ["id"],
    }
    text = "Change an item of the kind {n} in the service.\n\nReturns the item as it is then, with its history."
    return [tool_from_schema(f"server__change_{n}", text.format(n=n), schema, lambda _: "done") for n in range(TOOLS)]


async def measure_prompt(extensions: Sequence[Any]) -> int:
    """Return the bytes of the tools in the first request of an agent with many tools."""
    model = ScriptedModel("done")
    await Agent(model, tools=build_tools(), extensions=extensions).run("Go")
    return len(msgspec.json.encode(model.requests[0].tools))


def figures(effort: Effort) -> Iterator[Figure]:
    """What programs and catalogues cost."""
    whole, catalogue = asyncio.run(measure_prompt(())), asyncio.run(measure_prompt((tool_search(),)))
    lines = sum([len(f"- {each.name}: {each.description.splitlines()[0]}\\n") for each in build_tools()])
    yield Figure(
        "500 tools in the prompt",
        catalogue / 1e3,
        "kB",
        "the tools of a request with tool search; the budget is the catalogue itself and 1.5 kB",
        budget=(lines + 1_500) / 1e3,
        detail=f"without tool search {whole / 1e3:.0f} kB",
    )
    if find_spec("pydantic_monty") is None:
        return
    found = asyncio.run(measure_programs(effort))
    for way, text in (("at once", "gathered"), ("in a row", "one after the other")):
        own, child = found[f"program {way}"]
        plain = sum(found[f"calls {way}"])
        yield Figure(
            f"program with ten calls {way}",
            own + child - plain,
            "ms",
            f"CPU of a run whose program makes ten calls, {text}, over that of a run that makes them without a program",
            budget=BUDGET_MS,
            detail=f"{child:.2f} ms of it in the interpreter's process",
        )
