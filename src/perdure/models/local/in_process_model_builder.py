"""Build a model whose weights are loaded into this process, and which calls tools by writing JSON."""

from collections.abc import AsyncIterator

from msgspec.structs import replace

from perdure.core import argument_checks
from perdure.core.event import ModelEvent
from perdure.core.model import Model, Price, Request
from perdure.core.model_and_tool_wrappers import WrappedModel, open_stream
from perdure.models.http_model import HttpModel
from perdure.models.json_tools import json_tools
from perdure.models.openai_chat import WIRE
from perdure.models.profile import Profile

from .in_process_transport import InProcessTransport
from .llama_backend import DEFAULT_SLOTS, BackendOptions, get_default_thread_count
from .small_model_adapter import adapt_to_small_model
from .weights_file import PACKAGED_NAME, WeightsFile, find_weights

MAX_DEFAULT_CONTEXT = 8192
"""Maximum default context window: memory for all of it is allocated when the weights are loaded."""
_UNKNOWN_CONTEXT = 2048
_REPLY_FRACTION = 4
"""Fraction of the context for one reply by default (a quarter): small models do not always stop."""


def build_local_model(name: str, *, context_tokens: int | None, slots: int | None, threads: int | None) -> Model:
    """Build a model that runs in this process with llama.cpp, for `open_local`; `slots` is the number of parallel
    replies.
    """
    for argument, value in (("context_tokens", context_tokens), ("slots", slots), ("threads", threads)):
        if value is not None:
            argument_checks.require_int("open_local", argument, value, 1)
    weights = find_weights(name)
    context = context_tokens or min(weights.context_tokens or _UNKNOWN_CONTEXT, MAX_DEFAULT_CONTEXT)
    setup = BackendOptions(weights.path, context, slots or DEFAULT_SLOTS, threads or get_default_thread_count())
    endpoint = HttpModel(WIRE, _build_profile(weights, context), base_url="local:", transport=InProcessTransport(setup))
    model = json_tools(_with_default_settings(endpoint, context))
    return adapt_to_small_model(model, context) if weights.name == PACKAGED_NAME else model


def _build_profile(weights: WeightsFile, context: int) -> Profile:
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


def _with_default_settings(model: HttpModel, context: int) -> Model:
    """Wrap a model with default settings: temperature 0 for reproducible replies, and a limit on their length."""

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        given = request.settings
        settings = replace(
            given,
            temperature=0.0 if given.temperature is None else given.temperature,
            max_output_tokens=given.max_output_tokens or context // _REPLY_FRACTION,
            extra_body={"return_progress": True, **given.extra_body},
        )
        async with open_stream(model, replace(request, settings=settings)) as events:
            async for event in events:
                yield event

    return WrappedModel(model.info, stream)
