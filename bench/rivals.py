"""How others keep sessions: the same work, in an environment of its own, because they bring many packages along.

    make rivals     makes that environment, .venv-bench (openai-agents and langgraph)

Run as a program there, it prints what it has measured as JSON.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .measure import Figure

PYTHON = Path(__file__).parent.parent / ".venv-bench" / "bin" / "python"
SECONDS = 600

_PROGRAM = """
import asyncio, json, os, random, base64, sys, tempfile, time
turns = int(sys.argv[1])
chance = random.Random(7)
words = [base64.b32encode(chance.randbytes(4)).decode().strip("=").lower() for _ in range(20000)]
text = lambda: " ".join(chance.choices(words, k=128))
size = lambda folder: sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
cpu = time.process_time

async def openai_agents(folder):
    from agents import SQLiteSession
    session = SQLiteSession("s", os.path.join(folder, "openai.db"))
    turn = lambda: [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
    for _ in range(turns):
        await session.add_items(turn())
    began = cpu()
    for _ in range(20):
        await session.add_items(turn())
    append = (cpu() - began) / 20
    loads = []
    for _ in range(5):
        began = cpu()
        await session.get_items()
        loads.append(cpu() - began)
    session.close()
    return {"append_us": append * 1e6, "load_ms": min(loads) * 1e3, "bytes": size(folder)}

def langgraph(folder):
    import sqlite3
    from typing import Annotated, TypedDict
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import START, StateGraph
    from langgraph.graph.message import add_messages
    class State(TypedDict):
        messages: Annotated[list, add_messages]
    graph = StateGraph(State)
    graph.add_node("answer", lambda state: {"messages": [AIMessage(text())]})
    graph.add_edge(START, "answer")
    saver = SqliteSaver(sqlite3.connect(os.path.join(folder, "langgraph.db"), check_same_thread=False))
    app = graph.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "s"}}
    past = [kind(text()) for _ in range(turns) for kind in (HumanMessage, AIMessage)]
    app.invoke({"messages": past}, config)
    before, began = size(folder), cpu()
    for _ in range(5):
        app.invoke({"messages": [HumanMessage(text())]}, config)
    append = (cpu() - began) / 5
    loads = []
    for _ in range(3):
        began = cpu()
        app.get_state(config)
        loads.append(cpu() - began)
    return {"append_us": append * 1e6, "load_ms": min(loads) * 1e3, "bytes": (size(folder) - before) / 5}

with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
    print(json.dumps({"openai": asyncio.run(openai_agents(one)), "langgraph": langgraph(two)}))
"""


def figures(turns: int) -> Iterator[Figure]:
    """What an append and a load cost the others; nothing but a word when they are not installed."""
    if not PYTHON.exists():
        print("(openai-agents and langgraph are not installed beside it: `make rivals` does that)", flush=True)
        return
    command = [str(PYTHON), "-c", _PROGRAM, str(turns)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    what = f"CPU, for comparison: session of {turns:,} turns, messages of 1 KiB"
    for name, key in (("openai-agents SQLiteSession", "openai"), ("langgraph SqliteSaver", "langgraph")):
        yield Figure(f"{name}: append of a turn", told[key]["append_us"], "us", what)
        yield Figure(f"{name}: load", told[key]["load_ms"], "ms", what)
    yield Figure("openai-agents SQLiteSession: file", told["openai"]["bytes"] / 1e6, "MB", "all of it")
    written = told["langgraph"]["bytes"] / 1e6
    yield Figure("langgraph SqliteSaver: written for one turn", written, "MB", "at that length")
