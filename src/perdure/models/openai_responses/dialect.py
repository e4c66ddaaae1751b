"""How providers of the Responses wire differ. Data. Above: `encode.py`, `items.py`, `lint.py`. Below: `profile.py`.

`Profile.dialect` names a row. The first is what OpenAI itself takes, and everybody who is not in the table.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from perdure.models.profile import Profile

LONGEST_CACHE_KEY = 64
"""How long a `prompt_cache_key` may be, everywhere."""


class Dialect(Struct, frozen=True, kw_only=True):
    """What one provider takes."""

    reasoning: bool = True
    """Whether it may be told how hard to think."""
    encrypted: bool = True
    """Whether it gives its reasoning away, encrypted, when it is asked to by `include`."""
    sampling: bool = True
    """Whether it takes `temperature` and `top_p`."""
    output_limit: bool = True
    """Whether it takes `max_output_tokens`."""
    least_output: int = 16
    """The smallest `max_output_tokens` that it takes."""
    cache_key: bool = True
    """Whether it takes `prompt_cache_key`."""
    system_role: str = "system"
    """What it calls instructions that stand between messages."""
    default_instructions: str = ""
    """What is sent when there are no instructions, to a provider that demands some."""
    always_streams: bool = False
    """Whether it answers in no other way."""
    rich_results: bool = True
    """Whether the result of a tool may hold images and files. Otherwise they follow in a message of their own."""
    data_urls: bool = True
    """Whether the bytes of a file are sent as a `data:` address, and not bare."""
    longest_id: int = 64
    """How long the name of a call may be."""


_OPENAI = Dialect()
_SILENT = Dialect(reasoning=False, encrypted=False)
_OPEN = Dialect(encrypted=False, cache_key=False, rich_results=False, least_output=1)

DIALECTS: Mapping[str, Dialect] = {
    "": _OPENAI,
    "silent": _SILENT,
    "open": _OPEN,
    "deepseek": _OPEN,
    "lmstudio": _OPEN,
    "vllm": _OPEN,
    "ollama": _OPEN,
    "bedrock": Dialect(longest_id=256),
    "xai": Dialect(rich_results=False, data_urls=False, least_output=1),
    "codex": Dialect(
        sampling=False,
        output_limit=False,
        system_role="developer",
        default_instructions="You are a helpful assistant.",
        always_streams=True,
    ),
}
"""`silent`: models of OpenAI that do not reason. `open`: servers of open models, which know the heart of the wire."""

# OpenAI refuses `include` and `reasoning` for models that do not reason, with status 400.
_DOES_NOT_REASON = re.compile(r"(?:^|[/.])(?:gpt-3|gpt-4|chatgpt-4|gpt-5(?:[.-]\d+)?-chat)").search


def dialect_of(profile: Profile) -> Dialect:
    """How this endpoint wants to be spoken to."""
    found = DIALECTS.get(profile.dialect, _OPENAI)
    return _SILENT if found is _OPENAI and _DOES_NOT_REASON(profile.model) else found
