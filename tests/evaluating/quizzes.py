"""Small datasets and agents for the tests of evals."""

import asyncio

from perdure import Agent
from perdure.evals import Case, Dataset
from perdure.models import Price
from perdure.testing import ScriptedModel

PRICE = Price(input_usd=1000.0, output_usd=2000.0)
"""Dollars for a million tokens: a scripted reply has 10 tokens in and 5 out, so it costs two cents."""
PATIENCE = 60
"""Seconds after which a test that waits gives up."""


def answering(function, **options) -> Agent:
    """An agent whose model answers with what a function, plain or async, makes of the prompt."""

    def reply(request):
        return function(next(each.text for each in reversed(request.messages) if each.role == "user"))

    model = ScriptedModel(reply, name=options.pop("model_name", "function"), price=PRICE, repeat_last=True)
    return Agent(model, **{"name": "quizzed", **options})


def echo(**options) -> Agent:
    """An agent that answers with the prompt."""
    return answering(lambda prompt: prompt, **options)


def quiz(*prompts, name="quiz", **fields) -> Dataset:
    """A dataset whose cases expect their own prompts."""
    return Dataset(
        name, [Case(**{"prompt": each, "expected": each, "graders": ["equals"], **fields}) for each in prompts]
    )


def asked(agent: Agent) -> list[str]:
    """The prompts that the model of an agent was sent, in order."""
    assert isinstance(agent.model, ScriptedModel)
    return [next(each.text for each in request.messages if each.role == "user") for request in agent.model.requests]


async def evaluate(evaluation, **options):
    """Run an evaluation within a bounded time."""
    async with asyncio.timeout(PATIENCE):
        return await evaluation.run(**options)
