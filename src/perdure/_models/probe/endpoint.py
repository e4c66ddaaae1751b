"""Probe an endpoint: find out its capabilities with a few small requests.

`client` sends one request and parses the reply; `experiments` has the experiments: streaming, tools, structured output,
images, the context window and others. The result is a `Profile`, saved in a file that `open_model` reads.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.error import BadRequest, ConfigError
from perdure._io.http.transport import Transport
from perdure._models.catalogue.base_url import get_host, get_wire_base_url, normalize_base_url
from perdure._models.catalogue.entry import WireName
from perdure._models.catalogue.families import get_capability_fields
from perdure._models.catalogue.saved_profiles import SavedProfile, save_profile
from perdure._models.endpoint.auth import ApiKey, key_header_for
from perdure._models.endpoint.profile import Profile
from perdure._models.endpoint.wire import load_wire

from .client import MAX_REQUESTS, ProbeClient, ProbeReply, RequestLimitReached
from .experiments import (
    ProbeFinding,
    ProfileDraft,
    look_up_published_context_window,
    probe_context_window_by_overflow,
    probe_developer_role,
    probe_images,
    probe_parallel_calls,
    probe_schema_keywords,
    probe_strict_tools,
    probe_structured_output,
    probe_tools,
    send_until_accepted,
)

__all__ = ["MAX_REQUESTS", "ProbeFinding", "ProbeResult", "ProbeWire", "probe"]

ProbeWire: TypeAlias = Literal["auto", "openai_chat", "openai_responses", "anthropic"]
Experiment: TypeAlias = Callable[[ProbeClient, ProfileDraft], Awaitable[None]]

_WIRES: Sequence[WireName] = ("openai_chat", "openai_responses", "anthropic")
_WRONG_PATH_STATUSES = (404, 405)


class ProbeResult(Struct, frozen=True):
    """Result of a probe: the endpoint's profile (capabilities and limits), and a finding per experiment."""

    saved_profile: SavedProfile
    """Content of the profile file."""
    profile: Profile
    findings: list[ProbeFinding]
    requests: int
    """Number of requests sent."""

    def save(self) -> str:
        """Write the profile to the file that `open_model` reads. Return its path."""
        return save_profile(self.saved_profile)


async def probe(
    base_url: str,
    model: str,
    *,
    api_key: str = "",
    key_variable: str = "",
    wire: ProbeWire = "auto",
    deep: bool = False,
    transport: Transport | None = None,
    on_progress: Callable[[str], object] = bool,
    clock: Clock = SYSTEM_CLOCK,
) -> ProbeResult:
    """Find out the capabilities of a model at a base URL. Writes nothing.

    Raises a `NetError` if the endpoint cannot be reached, `AuthFailed` if the key is rejected, and `ConfigError` if the
    endpoint has another API. The key is given, or in the environment variable `key_variable`. `on_progress` is called
    with each step of the probe. `deep` also sends one request that is much too long, if the endpoint does not publish
    its context window.
    """
    from perdure._io.http.pooled import get_shared_transport

    url = normalize_base_url(base_url)
    wires = _WIRES if wire == "auto" else (wire,)
    network = transport or get_shared_transport()
    clients = [
        ProbeClient(
            load_wire(each),
            get_wire_base_url(url, each),
            _build_key(each, api_key, key_variable),
            network,
            clock=clock,
            on_progress=on_progress,
        )
        for each in wires
    ]
    draft = ProfileDraft(_guess_profile(url, model))
    client = await _find_accepted_wire(clients, draft)
    try:
        for experiment in _list_experiments(client.wire.name, deep=deep):
            if draft.profile.tools == "native" or experiment not in _TOOL_EXPERIMENTS:
                await experiment(client, draft)
    except RequestLimitReached:
        draft.record_finding("requests", f"stopped after {client.request_count}; what is not listed was not tested")
    _record_observations(client, draft)
    told = {each.about: each.found for each in draft.findings}
    name: WireName = client.wire.name  # type: ignore[assignment] # a known wire
    kept = SavedProfile(
        base_url=url, model=model, wire=name, key_variable=key_variable, profile=draft.fields, learned=told
    )
    return ProbeResult(kept, draft.profile, draft.findings, sum(each.request_count for each in clients))


_TOOL_EXPERIMENTS: Sequence[Experiment] = (probe_parallel_calls, probe_schema_keywords, probe_strict_tools)


def _list_experiments(wire: str, *, deep: bool) -> Sequence[Experiment]:
    """Return the experiments in order: tools first, as others depend on them; roles only for chat completions."""
    roles = (probe_developer_role,) if wire == "openai_chat" else ()
    return (
        probe_tools,
        *_TOOL_EXPERIMENTS,
        probe_structured_output,
        probe_images,
        *roles,
        look_up_published_context_window,
        *((probe_context_window_by_overflow,) if deep else ()),
    )


def _build_key(wire: WireName, given: str, variable: str) -> ApiKey:
    return ApiKey((variable,) if variable else (), header=key_header_for(wire), given=given)


def _guess_profile(url: str, model: str) -> Profile:
    """Return the profile that the probe starts with, derived from the model's name."""
    known = get_capability_fields(model)
    return Profile(provider=get_host(url), model=model, schema=known.get("schema", "plain"))


async def _find_accepted_wire(clients: Sequence[ProbeClient], draft: ProfileDraft) -> ProbeClient:
    """Return the first client whose API format (wire) the endpoint accepts. Raises an error if there is none."""
    failed: list[ProbeReply] = []
    for client in clients:
        reply = await send_until_accepted(client, draft)
        if reply.is_accepted:
            draft.findings.insert(0, ProbeFinding("wire", client.wire.name))
            return client
        failed.append(reply)
        if reply.status not in _WRONG_PATH_STATUSES:
            break
    raise _build_rejection(failed[-1] if failed[-1].status not in _WRONG_PATH_STATUSES else failed[0], draft.profile)


def _build_rejection(reply: ProbeReply, profile: Profile) -> Exception:
    """Return the exception for an endpoint that rejected every first request."""
    if reply.error is not None and not isinstance(reply.error, BadRequest):
        return reply.error
    return ConfigError(
        f"{profile.provider!r} does not answer for the model {profile.model!r} ({reply.reason}): check the base URL, "
        f"which often ends in /v1, the name of the model, and the wire"
    )


def _record_observations(client: ProbeClient, draft: ProfileDraft) -> None:
    """Record the context window, thinking fields and output-limit field that the replies showed."""
    if draft.profile.context_tokens is None:
        draft.record_finding("context", "not published; it is learned when a request is too long")
    fields = ", ".join(sorted(draft.thinking_fields))
    draft.record_finding("thinking", f"shown as {fields}" if fields else "not shown")
    if client.wire.name != "openai_chat":
        return
    dialect = _DIALECTS[draft.profile.dialect == "openai", "reasoning" in draft.thinking_fields]
    limit = "max_completion_tokens" if draft.profile.dialect == "openai" else "max_tokens"
    draft.record_finding("output limit", f"called {limit}", dialect=dialect)


_DIALECTS: Mapping[tuple[bool, bool], str] = {
    (False, False): "",
    (False, True): "vllm",
    (True, False): "openai",
    (True, True): "cerebras",
}
"""Dialect by two flags: the newer name of the output limit is used; thinking is in a field `reasoning`."""
