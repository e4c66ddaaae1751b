"""A conversation whose tools leave traces in the outside world, and what must be true of it after any disaster.

For `test_power.py` and `test_disk.py`. It can be driven from wherever it stands, any number of times.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from perdure import Agent, ToolContext, tool
from perdure.engines import State, fold_entries
from perdure.events import Entry, ToolStarted
from perdure.models import Request
from perdure.stores import Store
from perdure.testing import ScriptedModel, call, calls
from tests.transcript import assert_valid

SESSION = "s"

Script: TypeAlias = Mapping[str, tuple[Any, ...]]
"""What the model says to each prompt, turn by turn."""

LONG: Script = {
    "go": (calls(call("pay"), call("put"), call("look")), call("pay"), "Done."),
    "again": (calls(call("sign"), call("pay")), "Fine."),
}
SHORT: Script = {"go": (call("pay"), "Fine.")}
ONCE = ("pay", "sign")
"""Tools whose effect may happen once at most."""


async def converse(store: Store, effects: list[tuple[str, str]], script: Script) -> None:
    """Begin, go on with, or add to the conversation, until each prompt has its answer."""
    model = ScriptedModel(partial(answer, script), repeat_last=True)
    session = Agent(model, tools=tools(effects), store=store).session(SESSION)
    try:
        while True:
            state = fold_entries(await store.read(SESSION))
            if state.is_interrupted:
                await session.resume()
            elif missing := next((prompt for prompt in script if prompt not in prompts(state)), None):
                await session.run(missing)
            else:
                return
    finally:
        await session.aclose()


def prompts(state: State) -> list[str]:
    """What the person has said."""
    return [message.text for message in state.messages if message.role == "user"]


def answer(script: Script, request: Request) -> Any:
    """What the model says wherever the conversation stands."""
    assert_valid(request.messages)
    turn, place = 0, len(request.messages)
    while request.messages[place - 1].role != "user":
        place -= 1
        turn += request.messages[place].role == "tool"
    return script[request.messages[place - 1].text][turn]


def tools(effects: list[tuple[str, str]]) -> list[Any]:
    """What may happen once, what may be repeated, what changes nothing, and a function on a thread."""

    @tool
    async def pay(context: ToolContext) -> str:
        """Pays."""
        effects.append(("pay", context.idempotency_key))
        return "paid"

    @tool(effect="idempotent")
    async def put(context: ToolContext) -> str:
        """Puts something somewhere."""
        effects.append(("put", context.idempotency_key))
        return "put"

    @tool(effect="read")
    async def look() -> str:
        """Looks."""
        return "seen"

    @tool(parallel=False)
    def sign(context: ToolContext) -> str:
        """Signs, on a thread."""
        effects.append(("sign", context.idempotency_key))
        return "signed"

    return [pay, put, look, sign]


def without_intent(log: Sequence[Entry], effects: Sequence[tuple[str, str]]) -> list[str]:
    """Effects that the log knows nothing of, and those that happened more often than they may."""
    intended = {entry.event.idempotency_key for entry in log if isinstance(entry.event, ToolStarted)}
    wrong = [f"no intent: {name} {key}" for name, key in effects if key not in intended]
    doubled = [each for each, count in Counter(effects).items() if count > 1 and each[0] in ONCE]
    return [*wrong, *(f"doubled: {name} {key}" for name, key in doubled)]


def unfinished(log: Sequence[Entry], script: Script) -> list[str]:
    """What keeps a conversation from being over, and valid."""
    state = fold_entries(log)
    wrong = ["the log is not closed"] if state.is_interrupted or state.unsettled_calls or state.started_calls else []
    if prompts(state) != [*script]:
        wrong.append(f"the prompts are {prompts(state)}")
    if not state.messages or state.messages[-1].text != "Fine.":
        wrong.append("the conversation has not come to its end")
    try:
        assert_valid(state.messages)
    except AssertionError as error:
        wrong.append(f"the history is invalid: {error}")
    return wrong
