"""A model that plays every part that an engine asks for, and tools whose effects are counted."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from perdure import Agent, Message, Tool, tool
from perdure.models import Request
from perdure.testing import ScriptedModel, call, calls

PLAN = (
    '[{"id": "a", "description": "note one"}, {"id": "b", "description": "note two"},'
    ' {"id": "c", "description": "join them", "depends_on": ["a", "b"]}]'
)
POOR = '{"score": 3, "issues": ["too short"], "suggestion": "say more", "needs_revision": true}'
GOOD = '{"score": 9, "issues": [], "suggestion": "", "needs_revision": false}'
ENGINES = ("react", "chain_of_thought", "planner", "reflect", "autonomous", "passthrough")

Part = Callable[[Request], Any] | str
"""What the model says in a part: text, or a function of the request."""


def last_question(request: Request) -> str:
    """Return the last words to the model."""
    return next((each.text for each in reversed(request.messages) if each.role == "user"), "")


def find_part(request: Request) -> str:
    """Return the part that the model is asked to play by this request."""
    asked = next((each for each in reversed(request.messages) if each.origin in {"engine", "reminder"}), None)
    words = last_question(request) if asked is None else asked.text
    for part, sign in SIGNS.items():
        if sign in words:
            return part
    return "answer"


SIGNS = {
    "plan": "Make a plan for the last message",
    "replan": "did not work out as a whole",
    "task": "Do this one task now",
    "report": "which have been carried out",
    "review": "Review the last answer",
    "revision": "was reviewed, and is to be revised",
    "thought": "Think about the last message",
}


def find_task(request: Request) -> str:
    """Return the description of the task that a request is about."""
    return last_question(request).partition("nothing else:\n\n")[2].partition("\n\n")[0]


def do_task(request: Request) -> Any:
    """Call a tool for the task, and report its result."""
    if request.messages[-1].role == "tool":
        return f"result of {find_task(request)}"
    return call("note", text=find_task(request))


def work_and_answer(request: Request) -> Any:
    """Call a tool twice, and answer; with a tool that says so if there is one."""
    made = [each for message in request.messages for each in message.tool_results]
    if len(made) < 2 and request.tools:
        return call("note", text=f"step {len(made) + 1}")
    if any(each.name == "finish" for each in request.tools):
        return calls(call("note", text="last"), call("finish", result="All is done."))
    return "A draft."


PARTS: Mapping[str, Part] = {
    "plan": PLAN,
    "replan": "[]",
    "task": do_task,
    "report": "Both are noted.",
    "review": lambda request: GOOD if says(request, "A better") else POOR,
    "revision": "A better answer.",
    "thought": "First I note, then I answer.",
    "answer": work_and_answer,
}


def says(request: Request, words: str) -> bool:
    """Return True if the model has said these words before."""
    return any(words in each.text for each in request.messages if each.role == "assistant")


def play(**parts: Part) -> ScriptedModel:
    """Return a model that plays the usual parts, and these."""

    def reply(request: Request) -> Any:
        part = {**PARTS, **parts}[find_part(request)]
        return part(request) if callable(part) else part

    return ScriptedModel(reply, repeat_last=True)


class World:
    """What tools have done, and how often."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()

    def tools(self) -> list[Tool[..., Any]]:
        """Return the tools of an agent in this world."""

        @tool(effect="at_most_once")
        async def note(text: str) -> str:
            """Note a text."""
            self.effects[text] += 1
            return f"noted {text}"

        @tool(effect="at_most_once", permission=True)
        async def publish(text: str) -> str:
            """Publish a text."""
            self.effects[f"published {text}"] += 1
            return f"published {text}"

        return [note, publish]


def build_agent(engine: Any, world: World | None = None, *, model: Any = None, **options: Any) -> Agent[Any]:
    """Return an agent with this engine."""
    return Agent(model or play(), tools=(world or World()).tools(), engine=engine, **options)


def said(messages: Any) -> list[tuple[str, str]]:
    """Return the roles and texts of messages without tool calls and results."""
    plain: list[Message] = [each for each in messages if not each.tool_calls and each.role != "tool"]
    return [(str(each.role), each.text) for each in plain]
