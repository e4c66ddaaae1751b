"""Metadata that providers send with a reply, such as `served_model`, under common names. No I/O.

served_by        the company that answered, when a gateway passed the request on
served_model     the model that answered, when the request named an alias
service_tier     the tier of service that was used
logprobs         log probabilities of the tokens, as the provider sent them
candidates       further candidates, beside the one that is the reply
guardrail_trace  what filters of the provider have found
"""

from typing import Any

from .mistyped_json_fields import as_dict, as_list


def drop_empty_fields(**fields: Any) -> dict[str, Any]:
    """Return the given keyword arguments without those that are None or empty."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def get_served_model(served: Any, requested: str) -> str:
    """Return the name of the model that answered, if it is not the requested one; else an empty string."""
    return served if isinstance(served, str) and served.rpartition("/")[2] != requested.rpartition("/")[2] else ""


def has_content_filter_hit(filters: Any) -> bool:
    """Return True if a provider's content filter results contain anything filtered, detected or blocked."""
    named = as_dict(filters).items()
    is_found = any((name in _FINDINGS and value is True) or has_content_filter_hit(value) for name, value in named)
    return is_found or any(map(has_content_filter_hit, as_list(filters)))


_FINDINGS = frozenset({"filtered", "detected", "blocked"})
