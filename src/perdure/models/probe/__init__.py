"""Finding out what an endpoint can do, with a few small requests. Above: `perdure probe`, callers. Below: the wires.

    ask.py         one question, and what came back
    experiment.py  what is tried: streaming, tools, structured output, images …
    keywords.py    which words of JSON Schema are refused
    window.py      how much it reads at once
    draft.py       what is known so far

What it learns is a `Profile`, kept in a file that `open_model` reads (`profiles.py`).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from perdure.core.clock import SYSTEM_CLOCK, Clock
from perdure.core.error import BadRequest, ConfigError
from perdure.models.address import base_for, checked_url, host_of
from perdure.models.capability import facts
from perdure.models.catalog import WireName
from perdure.models.key import Key, header_for
from perdure.models.opening import wire_of
from perdure.models.profile import Profile
from perdure.models.profiles import KeptProfile, keep_profile
from perdure.net.transport import Transport

from .ask import MOST_REQUESTS, Asker, Heard, NoMoreQuestions
from .draft import Draft, Finding
from .experiment import developer_role, greet, images, output, parallel_calls, strict, tools
from .keywords import schema_keywords
from .window import learned_window, window

__all__ = ["MOST_REQUESTS", "Finding", "Learned", "ProbeWire", "probe"]

ProbeWire: TypeAlias = Literal["auto", "openai_chat", "openai_responses", "anthropic"]
Experiment: TypeAlias = Callable[[Asker, Draft], Awaitable[None]]

_WIRES: Sequence[WireName] = ("openai_chat", "openai_responses", "anthropic")
_NOT_THERE = (404, 405)


class Learned(Struct, frozen=True):
    """What a probe has found out."""

    kept: KeptProfile
    """What goes into the file."""
    profile: Profile
    findings: list[Finding]
    requests: int
    """How many requests it took."""

    def keep(self) -> str:
        """Write the file that `open_model` reads. Returns its path."""
        return keep_profile(self.kept)


async def probe(
    base_url: str,
    model: str,
    *,
    api_key: str = "",
    key_variable: str = "",
    wire: ProbeWire = "auto",
    deep: bool = False,
    transport: Transport | None = None,
    tell: Callable[[str], object] = bool,
    clock: Clock = SYSTEM_CLOCK,
) -> Learned:
    """Find out what a model at an address can do. Writes nothing.

    Raises a `NetError` when nobody answers there, `AuthFailed` when the key is not good, and `ConfigError` when
    something else is spoken there. The key is given, or in the environment under `key_variable`. `tell` is called with
    what is being looked at. `deep` also sends one request that is much too long, when the endpoint does not say how
    much it can read.
    """
    from perdure.net.http import shared

    url = checked_url(base_url)
    wires = _WIRES if wire == "auto" else (wire,)
    network = transport or shared()
    askers = [
        Asker(wire_of(each), base_for(url, each), _key(each, api_key, key_variable), network, clock=clock, tell=tell)
        for each in wires
    ]
    draft = Draft(_first_guess(url, model))
    asker = await _first_to_answer(askers, draft)
    try:
        for experiment in _experiments(asker.wire.name, deep=deep):
            if draft.profile.tools == "native" or experiment not in _WITH_TOOLS:
                await experiment(asker, draft)
    except NoMoreQuestions:
        draft.note("requests", f"stopped after {asker.asked}; what is not listed was not looked at")
    _conclude(asker, draft)
    told = {each.about: each.found for each in draft.findings}
    name: WireName = asker.wire.name  # type: ignore[assignment] # one of ours
    kept = KeptProfile(
        base_url=url, model=model, wire=name, key_variable=key_variable, profile=draft.fields, learned=told
    )
    return Learned(kept, draft.profile, draft.findings, sum(each.asked for each in askers))


_WITH_TOOLS: Sequence[Experiment] = (parallel_calls, schema_keywords, strict)


def _experiments(wire: str, *, deep: bool) -> Sequence[Experiment]:
    """Tools come first: what follows depends on them. Only chat completions know several roles."""
    roles = (developer_role,) if wire == "openai_chat" else ()
    return (tools, *_WITH_TOOLS, output, images, *roles, window, *((learned_window,) if deep else ()))


def _key(wire: WireName, given: str, variable: str) -> Key:
    return Key((variable,) if variable else (), header=header_for(wire), given=given)


def _first_guess(url: str, model: str) -> Profile:
    """What a model of this name would be able to do; the rest is what is looked for."""
    known = facts(model)
    return Profile(provider=host_of(url), model=model, schema=known.get("schema", "plain"))


async def _first_to_answer(askers: Sequence[Asker], draft: Draft) -> Asker:
    """Whose wire is spoken there. Raises what is in the way when none is."""
    failed: list[Heard] = []
    for asker in askers:
        heard = await greet(asker, draft)
        if heard.answered:
            draft.findings.insert(0, Finding("wire", asker.wire.name))
            return asker
        failed.append(heard)
        if heard.status not in _NOT_THERE:
            break
    raise _refusal(failed[-1] if failed[-1].status not in _NOT_THERE else failed[0], draft.profile)


def _refusal(heard: Heard, profile: Profile) -> Exception:
    """Why there is nothing to be learned."""
    if heard.error is not None and not isinstance(heard.error, BadRequest):
        return heard.error
    return ConfigError(
        f"{profile.provider!r} does not answer for the model {profile.model!r} ({heard.reason}): check the address, "
        f"which often ends in /v1, the name of the model, and the wire"
    )


def _conclude(asker: Asker, draft: Draft) -> None:
    """What the things seen on the way amount to."""
    if draft.profile.context_tokens is None:
        draft.note("context", "not told; it is learned when a request is too long")
    fields = ", ".join(sorted(draft.thinking_fields))
    draft.note("thinking", f"shown as {fields}" if fields else "not shown")
    if asker.wire.name != "openai_chat":
        return
    dialect = _DIALECTS[draft.profile.dialect == "openai", "reasoning" in draft.thinking_fields]
    limit = "max_completion_tokens" if draft.profile.dialect == "openai" else "max_tokens"
    draft.note("limit of the answer", f"called {limit}", dialect=dialect)


_DIALECTS: Mapping[tuple[bool, bool], str] = {
    (False, False): "",
    (False, True): "vllm",
    (True, False): "openai",
    (True, True): "cerebras",
}
"""By whether the limit of an answer has its newer name, and whether thinking is called `reasoning`."""
