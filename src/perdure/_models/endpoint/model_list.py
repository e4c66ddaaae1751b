"""Fetch the list of models that an endpoint serves, and their context windows.

Most servers have such a list at one of two paths, and give the context window of each model under various field names.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast, runtime_checkable

import msgspec
from msgspec import Struct

from perdure._core.values.error import AuthFailed
from perdure._core.values.jsonable import convert
from perdure._io.http.transport import NetError, Response
from perdure._models.provider_errors.classify import classify_error

from .auth import Auth

MAX_LIST_BYTES = 16 * 1024 * 1024
"""Maximum size of a list in bytes. OpenRouter's has a megabyte."""
_MIN_WINDOW_TOKENS = 256
"""Smaller numbers are not taken for a context window."""
_WINDOW_FIELDS = (
    "max_model_len",  # vLLM
    "loaded_context_length",  # LM Studio: what is loaded, rather than the model's maximum
    "context_length",  # OpenRouter, Together, Featherless
    "context_window",  # Groq
    "max_context_length",
    "max_context_tokens",
    "max_input_tokens",  # Anthropic
    "inputTokenLimit",  # Gemini
    "n_ctx",  # llama.cpp
)
_VERSION = {"anthropic-version": "2023-06-01"}  # other providers ignore it
_OK = 200


@runtime_checkable
class SupportsGet(Protocol):
    """Protocol for a transport that can also send GET requests."""

    def get(self, url: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Response]:
        """Send a GET request and wait for the response headers, with any status. Raises a `NetError`."""
        ...


class ListedModel(Struct, frozen=True):
    """Model that an endpoint lists, with its context window if that is published."""

    name: str
    context_tokens: int | None = None
    """Size of its context window in tokens, if the list has it."""


async def fetch_model_list(base_url: str, auth: Auth, transport: SupportsGet) -> list[ListedModel] | None:
    """Fetch the models of an endpoint; `None` if it has no list, or one that cannot be parsed.

    Raises a `NetError` if the endpoint cannot be reached, and `AuthFailed` if the key is rejected.
    """
    for path in ("/models", "/v1/models"):
        found = await _fetch_json(append_url_path(base_url, path), auth, transport)
        models = _parse_model_list(found) if found is not None else None
        if models is not None:
            return [ListedModel(name, _find_window(each)) for each in models if (name := _get_model_name(each))]
    return None


async def fetch_context_window(base_url: str, model: str, auth: Auth, transport: SupportsGet) -> int | None:
    """Fetch the context window of a model in tokens; `None` if the endpoint does not publish it or fails."""
    try:
        models = await fetch_model_list(base_url, auth, transport) or []
        tokens = next((each.context_tokens for each in models if each.name == model), None)
        if tokens is None:  # llama.cpp publishes the size it was started with at /props
            props = await _fetch_json(f"{base_url.removesuffix('/v1')}/props", auth, transport)
            tokens = _find_window(cast("Mapping[str, Any]", props)) if isinstance(props, dict) else None
    except (NetError, AuthFailed):
        return None
    return tokens


def append_url_path(base_url: str, path: str) -> str:
    """Append a path to a base URL, keeping the query of the base URL."""
    base, mark, query = base_url.partition("?")
    joint = "&" if "?" in path else "?"
    return f"{base}{path}{joint if mark else ''}{query}"


async def _fetch_json(url: str, auth: Auth, transport: SupportsGet) -> Any:
    """Fetch JSON from a URL; `None` if there is none. Raises `AuthFailed` if the key is rejected."""
    async with transport.get(url, {**_VERSION, **await auth.headers(url, b"")}) as answer:
        body = await answer.read(MAX_LIST_BYTES)
    if answer.status != _OK:
        error = classify_error(answer.status, answer.headers, body, url)
        if isinstance(error, AuthFailed):
            raise error
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class _ModelList(Struct):
    data: list[dict[str, Any]] | None = None
    models: list[dict[str, Any]] | None = None


def _parse_model_list(found: Any) -> list[dict[str, Any]] | None:
    try:
        models = convert(found, _ModelList | list[dict[str, Any]])
    except msgspec.ValidationError:
        return None
    return (models.models if models.data is None else models.data) if isinstance(models, _ModelList) else models


def _get_model_name(listed: Mapping[str, Any]) -> str:
    name = listed.get("id") or listed.get("name") or listed.get("model") or ""
    return str(name).removeprefix("models/")


def _find_window(value: Mapping[str, Any]) -> int | None:
    """Return the first plausible context window among the fields of an object, at any depth."""
    for name in _WINDOW_FIELDS:
        tokens = value.get(name)
        if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= _MIN_WINDOW_TOKENS:
            return tokens
    inner = [cast("Mapping[str, Any]", each) for each in value.values() if isinstance(each, dict)]
    return next((tokens for each in inner if (tokens := _find_window(each))), None)
