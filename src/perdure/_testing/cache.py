"""Test that an agent keeps its provider's prompt cache valid: each request begins with the previous one.

async def test_my_agent_keeps_its_prefix():
    await assert_cache_stable(agent, "first question", "second question")
"""

import difflib
import itertools
from typing import Any

import msgspec

from perdure._core.model.cache import find_first_change
from perdure._core.model.protocol import Model, Request
from perdure._core.model.wrappers import observed
from perdure._core.values.error import ConfigError
from perdure._core.values.event import ModelEvent
from perdure._runtime.agent.agent import Agent

from .model import ScriptedModel

_PROMPTS = ("one", "two", "three")


async def assert_cache_stable(agent: Agent[Any], *prompts: str, model: Model | None = None) -> None:
    """Run the prompts in one session, and assert that each model request begins with all of the previous one.

    Only then does the provider find it in its prompt cache. A `ScriptedModel` of the agent is used; any other model is
    replaced by `model`, or by one that answers "ok", so that nothing is sent anywhere. The `AssertionError` names the
    first part that changed (instructions, tools, a message), and shows how.
    """
    given: Any = agent
    if not isinstance(given, Agent):
        raise ConfigError(f"assert_cache_stable({given!r}): give an Agent(…)")
    asked = prompts or _PROMPTS
    own = agent.model if isinstance(agent.model, ScriptedModel) else ScriptedModel(*["ok"] * len(asked))
    seen: list[Request] = []

    def note(request: Request, _event: ModelEvent) -> None:
        if not seen or seen[-1] is not request:
            seen.append(request)

    session = agent.replace(model=observed(model or own, note), store="memory:").session()
    try:
        for prompt in asked:
            (await session.run(prompt)).unwrap()
    finally:
        await session.aclose()
    for place, (before, after) in enumerate(itertools.pairwise(seen), 2):
        segment, resent = find_first_change(before, after)
        if segment:
            raise AssertionError(
                f"request {place} does not begin with the one before it: {segment} has changed, so {resent} messages "
                f"are read again at full price. Append what changes, at the end, instead.\n"
                f"{_diff(segment, before, after)}"
            )


def _diff(segment: str, before: Request, after: Request) -> str:
    one, other = [_segment_lines(segment, each) for each in (before, after)]
    return "\n".join(difflib.unified_diff(one, other, "before", "after", lineterm=""))


def _segment_lines(segment: str, request: Request) -> list[str]:
    name, _, place = segment.partition("[")
    value: Any = getattr(request, name)
    if place:
        value = list(request.messages)[int(place.rstrip("]")) :][:1]
    text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value)).decode()
    return text.splitlines()
