"""Agents for quiz.toml, which run without a key: their model is a function that reads the question.

`careful` calls tools and answers from their results. `hasty` has no tools, and answers from memory, sometimes wrongly.

    perdure eval examples/evals/quiz.toml --agent examples/evals/quiz_agents.py:careful
"""

import asyncio
import operator
import re
from collections.abc import Callable

from perdure import Agent, Limits, ToolCall, ToolContext, ToolError, Usage, tool
from perdure.models import Price, Request
from perdure.testing import Reply, ScriptedModel, call

CAPITALS = {
    "France": "Paris",
    "Japan": "Tokyo",
    "Peru": "Lima",
    "Kenya": "Nairobi",
    "Canada": "Ottawa",
    "Norway": "Oslo",
    "Ghana": "Accra",
    "Chile": "Santiago",
    "Nepal": "Kathmandu",
    "Australia": "Canberra",
}
FACTORS = {("km", "m"): 1000, ("kg", "g"): 1000, ("h", "min"): 60, ("min", "s"): 60, ("m", "cm"): 100, ("d", "h"): 24}
OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


@tool
def calculate(left: float, sign: str, right: float) -> str:
    """Calculate with two numbers."""
    return f"{OPERATIONS[sign](left, right):g}"


@tool
def convert(amount: float, unit: str, to: str) -> str:
    """Convert an amount to another unit."""
    if (unit, to) not in FACTORS:
        raise ToolError(f"{unit} cannot be converted to {to}")
    return f"{amount * FACTORS[unit, to]:g} {to}"


@tool
def look_up_capital(country: str) -> str:
    """Return the capital of a country."""
    return CAPITALS[country]


@tool
def ticket_price(context: ToolContext[dict[str, float]]) -> str:
    """Return the price of a ticket for this customer."""
    return f"{context.deps['price']:.2f} EUR"


def choose_call(question: str) -> ToolCall | None:
    """Return the tool call that answers a question, if there is one."""
    if found := re.search(r"([\d.]+) ([-+*/]) ([\d.]+)", question):
        return call("calculate", left=float(found[1]), sign=found[2], right=float(found[3]))
    if found := re.search(r"([\d.]+) (\w+) in (\w+)", question):
        return call("convert", amount=float(found[1]), unit=found[2], to=found[3])
    if found := re.search(r"capital of (\w+)", question):
        return call("look_up_capital", country=found[1])
    return call("ticket_price") if "ticket" in question else None


def count_usage(request: Request, text: str) -> Usage:
    """Return the tokens of a request and its reply, about four characters each."""
    asked = len(request.instructions) + sum([len(each.text) + 40 for each in request.messages])
    return Usage(input_tokens=asked // 4 + 30 * len(request.tools), output_tokens=len(text) // 4 + 8)


async def answer_carefully(request: Request) -> Reply:
    """Call a tool, and answer from its result."""
    last = request.messages[-1]
    question = next(each.text for each in request.messages if each.role == "user")
    await asyncio.sleep(0.002 + len(question) % 7 / 1000)
    if "again and again" in question:
        return Reply(calls=(call("calculate", left=1, sign="+", right=len(request.messages)),))
    if last.tool_results:
        text = last.tool_results[0].text
    elif (wanted := choose_call(question)) is not None:
        return Reply(calls=(wanted,), usage=count_usage(request, question))
    else:
        text = '{"name": "Anna", "age": 31}' if "JSON" in question else "I cannot know that."
    return Reply(text, usage=count_usage(request, text))


async def answer_hastily(request: Request) -> Reply:
    """Answer at once, from memory."""
    question = request.messages[-1].text
    await asyncio.sleep(0.001 + len(question) % 3 / 1000)
    wanted = choose_call(question)
    if wanted is None:
        text = '{"name": "Anna"}' if "JSON" in question else "Certainly: 42!"
    elif wanted.name == "look_up_capital":
        country = question.rpartition("capital of ")[2].rstrip("?")
        text = {"Australia": "Sydney", "Canada": "Toronto"}.get(country, CAPITALS[country])
    elif wanted.name == "calculate" and "*" not in question and "/" not in question:
        found = re.search(r"([\d.]+) ([-+]) ([\d.]+)", question)
        text = f"{OPERATIONS[found[2]](float(found[1]), float(found[3])):g}" if found else "I do not know."
    else:
        text = "About 100, I think."
    return Reply(text, usage=count_usage(request, text))


PRICE = Price(input_usd=3.0, output_usd=15.0)
careful = Agent(
    ScriptedModel(answer_carefully, name="function", price=PRICE, repeat_last=True),
    name="careful",
    instructions="Answer with the result alone.",
    tools=[calculate, convert, look_up_capital, ticket_price],
    deps={"price": 9.0},
    limits=Limits(max_turns=6),
)
hasty = Agent(
    ScriptedModel(answer_hastily, name="function", price=PRICE, repeat_last=True),
    name="hasty",
    instructions="Answer at once.",
)
