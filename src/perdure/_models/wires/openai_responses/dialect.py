"""Table of the differences (dialects) between providers of the Responses API.

`Profile.dialect` names a row. The first row is for OpenAI and for every provider that is not in the table.
"""

import re
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from perdure._models.endpoint.profile import Profile

MAX_CACHE_KEY_LENGTH = 64
"""Maximum length of a `prompt_cache_key`, at all providers."""


class ResponsesDialect(Struct, frozen=True, kw_only=True):
    """Dialect of the Responses API: features and limits of one provider."""

    reasoning: bool = True
    """True if the provider accepts a reasoning effort."""
    encrypted: bool = True
    """True if the provider returns its reasoning encrypted when `include` asks for it."""
    sampling: bool = True
    """True if the provider accepts `temperature` and `top_p`."""
    output_limit: bool = True
    """True if the provider accepts `max_output_tokens`."""
    least_output: int = 16
    """The smallest accepted `max_output_tokens`."""
    needs_reasoning: bool = False
    """True if the provider refuses calls without the reasoning before them: those of other models get a placeholder."""
    cache_key: bool = True
    """True if the provider accepts `prompt_cache_key`."""
    system_role: str = "system"
    """Role of instructions between messages."""
    default_instructions: str = ""
    """Instructions to send if there are none, for a provider that requires some."""
    always_streams: bool = False
    """True if the provider only streams."""
    rich_results: bool = True
    """True if a tool result may contain images and files. Otherwise they follow in a separate user message."""
    data_urls: bool = True
    """True if the bytes of a file are sent as a `data:` URL instead of bare base64."""
    longest_id: int = 64
    """Maximum length of a call id."""
    provider_calls: frozenset[str] = frozenset()
    """Types of calls that look like the client's, and that the provider runs."""


_OPENAI = ResponsesDialect()
_SILENT = ResponsesDialect(reasoning=False, encrypted=False)
_XAI = ResponsesDialect(
    rich_results=False,
    data_urls=False,
    least_output=1,
    provider_calls=frozenset({"custom_tool_call"}),  # the steps of its search tools; it has no custom tools of clients
)
_OPEN = ResponsesDialect(encrypted=False, cache_key=False, rich_results=False, least_output=1)

DIALECTS: Mapping[str, ResponsesDialect] = {
    "": _OPENAI,
    "azure": _OPENAI,
    "silent": _SILENT,
    "open": _OPEN,
    "deepseek": replace(_OPEN, needs_reasoning=True),
    "lmstudio": _OPEN,
    "vllm": _OPEN,
    "ollama": _OPEN,
    "bedrock": ResponsesDialect(longest_id=256),
    "xai": _XAI,
    "codex": ResponsesDialect(
        sampling=False,
        output_limit=False,
        system_role="developer",
        default_instructions="You are a helpful assistant.",
        always_streams=True,
    ),
}
"""All rows by name. `silent`: OpenAI models that do not reason. `open`: servers of open models, which implement only
the core of the API.
"""

# OpenAI refuses `include` and `reasoning` for models that do not reason, with status 400.
_is_non_reasoning_model = re.compile(r"(?:^|[/.])(?:gpt-3|gpt-4|chatgpt-4|gpt-5(?:[.-]\d+)?-chat)").search


_is_grok_model = re.compile(r"(?:^|/)grok").search


def get_dialect(profile: Profile) -> ResponsesDialect:
    """Return the Responses API dialect of a profile; if it is OpenAI's or unknown, the one for its model.

    Models of xAI get its dialect, and models that do not reason get a dialect without reasoning.
    """
    found = DIALECTS.get(profile.dialect, _OPENAI)
    if found is not _OPENAI:
        return found
    if profile.provider == "xai" or _is_grok_model(profile.model):
        return _XAI
    return _SILENT if _is_non_reasoning_model(profile.model) else found
