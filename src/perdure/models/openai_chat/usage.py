"""Parse the token counts of a chat completions response, which providers report under many names."""

from collections.abc import Mapping
from typing import Any, cast

from perdure.core.message import Precision, Usage
from perdure.models.reported_cost import parse_reported_cost

_MAX_PLAUSIBLE_COUNT = 2**53
"""Upper bound of a plausible count."""
_CACHE_READ = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "num_cached_tokens", "cached_tokens")
_USUAL_COUNTS = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})
_THOUGHT = ("reasoning_tokens",)
_CACHE_WRITE = ("cache_creation_input_tokens", "cache_write_tokens")


def parse_usage(raw_usage: Mapping[str, Any]) -> Usage | None:
    """Parse the token counts in a response's usage object; `None` if it has neither input nor output tokens.

    If it has only one of them, the precision is `partial`.
    """
    read, written = (
        _get_first_count(raw_usage, "prompt_tokens", "input_tokens"),
        _get_first_count(raw_usage, "completion_tokens", "output_tokens"),
    )
    if read is None and written is None:
        return None
    precision: Precision = "partial" if read is None or written is None else "exact"
    read, written = read or 0, written or 0
    prompt, completion = (
        _get_object(raw_usage, "prompt_tokens_details"),
        _get_object(raw_usage, "completion_tokens_details"),
    )
    cached = stored = thought = 0
    if prompt or completion or not raw_usage.keys() <= _USUAL_COUNTS:
        cached = _get_first_count(prompt, "cached_tokens") or _get_first_count(raw_usage, *_CACHE_READ) or 0
        stored = _get_first_count(prompt, "cache_write_tokens") or _get_first_count(raw_usage, *_CACHE_WRITE) or 0
        thought = _get_first_count(completion, *_THOUGHT) or _get_first_count(raw_usage, *_THOUGHT) or 0
    total = _get_first_count(raw_usage, "total_tokens")
    if thought and total == read + written + thought:  # xAI does not include thinking in the output
        written += thought
    elif cached + stored and total == read + written + cached + stored:  # Anthropic does not count it as input
        read += cached + stored
    elif precision == "exact" and not thought and total is not None and total > read + written:
        thought = total - read - written  # Gemini counts its thinking in the total alone
        written += thought
    cached = min(cached, read)  # some providers report more than the input
    cost = parse_reported_cost(raw_usage)
    return Usage(read, written, cached, min(stored, read - cached), min(thought, written), precision, cost)


def _get_first_count(said: Mapping[str, Any], *names: str) -> int | None:
    """Return the value of the first of these fields that has a valid count."""
    for name in names:
        value = said.get(name)
        if isinstance(value, (int, float)) and 0 <= value < _MAX_PLAUSIBLE_COUNT:
            return int(value)
    return None


def _get_object(said: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = said.get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
