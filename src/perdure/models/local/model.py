"""Weights in this process, as a model. Above: `open_local`. Below: the chat wire, JSON tool mode, `transport.py`."""

from collections.abc import AsyncIterator

from msgspec.structs import replace

from perdure.core import check
from perdure.core.event import ModelEvent
from perdure.core.model import Model, Price, Request
from perdure.core.wrap import Wrapped, listening
from perdure.models.endpoint import Endpoint
from perdure.models.json_tools import json_tools
from perdure.models.openai_chat import WIRE
from perdure.models.profile import Profile

from .engine import SLOTS, Setup, threads_at_hand
from .transport import InProcess
from .weights import Weights, find_weights

MOST_CONTEXT = 8192
"""Memory is taken for the whole of the context when weights are loaded, so a model that could read more does not by
itself."""
_UNKNOWN_CONTEXT = 2048
_SHARE = 4
"""Of the context, a quarter for one reply unless settings say otherwise: a small model does not always find an end."""


def assembled(name: str, *, context_tokens: int | None, slots: int | None, threads: int | None) -> Model:
    """As `open_local` says."""
    for argument, value in (("context_tokens", context_tokens), ("slots", slots), ("threads", threads)):
        if value is not None:
            check.whole_number("open_local", argument, value, 1)
    weights = find_weights(name)
    context = context_tokens or min(weights.context_tokens or _UNKNOWN_CONTEXT, MOST_CONTEXT)
    setup = Setup(weights.path, context, slots or SLOTS, threads or threads_at_hand())
    endpoint = Endpoint(WIRE, _profile(weights, context), base_url="local:", transport=InProcess(setup))
    return json_tools(_steady(endpoint, context))


def _profile(weights: Weights, context: int) -> Profile:
    return Profile(
        provider="local",
        model=weights.name,
        context_tokens=context,
        max_output_tokens=context,
        price=Price(input_usd=0.0, output_usd=0.0),
        tools="json",
        parallel_tool_calls=False,
        output="schema",
        images=False,
    )


def _steady(model: Endpoint, context: int) -> Model:
    """The same conversation gets the same reply, and every reply ends."""

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        given = request.settings
        settings = replace(
            given,
            temperature=0.0 if given.temperature is None else given.temperature,
            max_output_tokens=given.max_output_tokens or context // _SHARE,
            extra_body={"return_progress": True, **given.extra_body},
        )
        async with listening(model, replace(request, settings=settings)) as events:
            async for event in events:
                yield event

    return Wrapped(model.info, stream)
