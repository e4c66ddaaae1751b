"""What an endpoint says about its models, without being asked a question. Above: `perdure models`, the probe.
Below: `net`.

Most servers have a list of models, at one of two places, and tell in it how much each can read, each under another
name.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast, runtime_checkable

import msgspec
from msgspec import Struct

from perdure.core.error import AuthFailed
from perdure.net.error import NetError
from perdure.net.transport import Answer

from .auth import Auth
from .refusal import classified

MOST_BYTES = 16 * 1024 * 1024
"""How long a list may be. OpenRouter's has a megabyte."""
_LEAST_TOKENS = 256
"""Whatever is smaller is no window."""
_WINDOWS = (
    "max_model_len",  # vLLM
    "loaded_context_length",  # LM Studio: what there is, rather than what there could be
    "context_length",  # OpenRouter, Together, Featherless
    "context_window",  # Groq
    "max_context_length",
    "max_context_tokens",
    "max_input_tokens",  # Anthropic
    "inputTokenLimit",  # Gemini
    "n_ctx",  # llama.cpp
)
_VERSION = {"anthropic-version": "2023-06-01"}  # who does not know it does not mind
_OK = 200


@runtime_checkable
class Fetching(Protocol):
    """A transport that can also get what is there."""

    def get(self, url: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Answer]:
        """Ask for this, and wait for the beginning of the answer, whatever its status. Raises a `NetError`."""
        ...


class Listed(Struct, frozen=True):
    """A model in a list of models."""

    name: str
    context_tokens: int | None = None
    """How much it can read at once, if the list says so."""


async def listed_models(base_url: str, auth: Auth, transport: Fetching) -> list[Listed] | None:
    """The models of an endpoint; `None` when it has no list, or one that cannot be understood.

    Raises a `NetError` when nobody answers there, and `AuthFailed` when the key is not good.
    """
    for path in ("/models", "/v1/models"):
        found = await _fetched(with_path(base_url, path), auth, transport)
        models = _models_in(found) if found is not None else None
        if models is not None:
            return [Listed(name, _window_in(each)) for each in models if (name := _name_of(each))]
    return None


async def told_window(base_url: str, model: str, auth: Auth, transport: Fetching) -> int | None:
    """How much a model can read at once, if the endpoint says so somewhere."""
    try:
        models = await listed_models(base_url, auth, transport) or []
        tokens = next((each.context_tokens for each in models if each.name == model), None)
        if tokens is None:  # llama.cpp tells what it was started with in a place of its own
            props = await _fetched(f"{base_url.removesuffix('/v1')}/props", auth, transport)
            tokens = _window_in(cast("Mapping[str, Any]", props)) if isinstance(props, dict) else None
    except (NetError, AuthFailed):
        return None
    return tokens


def with_path(base_url: str, path: str) -> str:
    """The address below a base that may have a query of its own."""
    base, mark, query = base_url.partition("?")
    joint = "&" if "?" in path else "?"
    return f"{base}{path}{joint if mark else ''}{query}"


async def _fetched(url: str, auth: Auth, transport: Fetching) -> Any:
    """What is there as JSON; `None` when there is nothing of the kind."""
    async with transport.get(url, {**_VERSION, **await auth.headers(url, b"")}) as answer:
        body = await answer.read(MOST_BYTES)
    if answer.status != _OK:
        error = classified(answer.status, answer.headers, body, url)
        if isinstance(error, AuthFailed):
            raise error
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class _List(Struct):
    data: list[dict[str, Any]] | None = None
    models: list[dict[str, Any]] | None = None


def _models_in(found: Any) -> list[dict[str, Any]] | None:
    try:
        models = msgspec.convert(found, _List | list[dict[str, Any]])
    except msgspec.ValidationError:
        return None
    return (models.models if models.data is None else models.data) if isinstance(models, _List) else models


def _name_of(listed: Mapping[str, Any]) -> str:
    name = listed.get("id") or listed.get("name") or listed.get("model") or ""
    return str(name).removeprefix("models/")


def _window_in(value: Mapping[str, Any]) -> int | None:
    """The first number under one of the names, also further inside."""
    for name in _WINDOWS:
        tokens = value.get(name)
        if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= _LEAST_TOKENS:
            return tokens
    inner = [cast("Mapping[str, Any]", each) for each in value.values() if isinstance(each, dict)]
    return next((tokens for each in inner if (tokens := _window_in(each))), None)
