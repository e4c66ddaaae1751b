"""Compare the instructions and tools of a request in a replay with the hashes that were recorded.

A log has one hash for the instructions and one for the tools, joined by `-`. Logs of earlier versions have a single
hash for both, which can be computed from a current request.
"""

import hashlib

import msgspec

from perdure.core.event import ModelRequested
from perdure.core.model import Request

_JOINT = "-"
_LENGTH = 16


def has_recorded_prompt_prefix(then: ModelRequested, now: ModelRequested, request: Request) -> bool:
    """Return True if the instructions and tools of the current request have the recorded hash."""
    return then.prefix == (now.prefix if _JOINT in then.prefix else _hash_both(request))


def describe_prefix_difference(then: ModelRequested, now: ModelRequested) -> str:
    """Return which part of a request differs from the recorded one, as text: the instructions, the tools, or both."""
    if _JOINT not in then.prefix:
        return "the instructions or tools"
    before, after = then.prefix.split(_JOINT), now.prefix.split(_JOINT)
    names = zip(("the instructions", "the tools"), before, after, strict=False)
    return ", ".join([name for name, one, other in names if one != other])


def _hash_both(request: Request) -> str:
    """Return the combined hash of instructions and tools that earlier versions stored."""
    return hashlib.sha256(msgspec.json.encode((request.instructions, request.tools))).hexdigest()[:_LENGTH]
