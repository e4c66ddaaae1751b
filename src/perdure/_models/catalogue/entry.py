"""The `Provider` class: an entry of the catalogue of providers, with the URL, key and API format to open its models."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

WireName: TypeAlias = Literal[
    "openai_chat",
    "openai_responses",
    "anthropic",
    "gemini",
    "vertex",
    "bedrock",
    "ollama",
    "codex",
    "local",
    "demo",
]
"""API format of a provider. The last two run in this process, without a network."""


class Provider(Struct, frozen=True, kw_only=True):
    """Built-in provider: its URL, key variables, API format (wire) and defaults."""

    name: str
    title: str
    """Display name."""
    wire: WireName
    aliases: tuple[str, ...] = ()
    """Other names that open it."""
    base_url: str = ""
    """Default base URL."""
    url_variables: tuple[str, ...] = ()
    """Environment variables that override the base URL, in order."""
    key_variables: tuple[str, ...] = ()
    """Environment variables that may contain its key, in order."""
    key_header: str = "authorization"
    """Header that the key is sent in."""
    needs_key: bool = True
    """True if it rejects requests without a key."""
    key_urls: Mapping[str, str] = {}
    """Base URL for the key of an environment variable, if it differs from `base_url`."""
    default_model: str = ""
    """Model to open if none is named. Empty: a model has to be named."""
    example_model: str = ""
    """Example of a model name, for error messages, if there is no default."""
    dialect: str = ""
    """Name of its variant of the wire."""
    cache_marked_models: str = ""
    """Pattern of models whose prompts it caches only up to marked places."""
    document_models: str = ""
    """Pattern of models that read documents here, though they do not everywhere: the provider extracts the text."""
    profile: Mapping[str, Any] = {}
    """Fields of a `Profile` that differ from what its models suggest."""
    same_at_any_url: bool = False
    """True if it has the same prices at any URL."""
    window_set_by_server: bool = False
    """True if the operator of the server configures the context window."""
    price_id: str = ""
    """Name of the provider in `genai-prices`. Empty: its prices are unknown."""
    is_free: bool = False
    """True if its tokens cost nothing, because it runs on the user's own machine."""
    key_help_url: str = ""
    """Web page where to get a key, or the program."""
