"""What a provider says it has counted, under the many names it has for it. Above: `decode.py`. Below: `core`."""

from collections.abc import Mapping
from typing import Any, cast

from perdure.core.message import Precision, Usage

_TOO_MANY = 2**53
"""What nobody has counted."""
_CACHE_READ = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "num_cached_tokens", "cached_tokens")
_CACHE_WRITE = ("cache_creation_input_tokens", "cache_write_tokens")


def usage_of(said: Mapping[str, Any]) -> Usage | None:
    """The counts, `partial` when one of the two that matter is missing; nothing when both are."""
    read, written = _count(said, "prompt_tokens", "input_tokens"), _count(said, "completion_tokens", "output_tokens")
    if read is None and written is None:
        return None
    precision: Precision = "partial" if read is None or written is None else "exact"
    read, written = read or 0, written or 0
    prompt, completion = _part(said, "prompt_tokens_details"), _part(said, "completion_tokens_details")
    cached = _count(prompt, "cached_tokens") or _count(said, *_CACHE_READ) or 0
    stored = _count(prompt, "cache_write_tokens") or _count(said, *_CACHE_WRITE) or 0
    thought = _count(completion, "reasoning_tokens") or _count(said, "reasoning_tokens") or 0
    total = _count(said, "total_tokens")
    if thought and total == read + written + thought:  # xAI counts thinking beside the text
        written += thought
    elif cached + stored and total == read + written + cached + stored:  # Anthropic counts the cache beside the rest
        read += cached + stored
    cached = min(cached, read)  # there are some who tell more than was read
    return Usage(read, written, cached, min(stored, read - cached), min(thought, written), precision)


def _count(said: Mapping[str, Any], *names: str) -> int | None:
    """The first of these that is a count."""
    for name in names:
        value = said.get(name)
        if isinstance(value, (int, float)) and 0 <= value < _TOO_MANY:
            return int(value)
    return None


def _part(said: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = said.get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
