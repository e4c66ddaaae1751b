"""Tokens, as this wire counts them. Pure. Above: `decode.py`. Below: `core/message.py`.

What was read is told in three numbers, fresh, written to the cache and read from it, of which none includes another.
Beginnings of streams tell a first guess; what comes later replaces it.
"""

from typing import Any

from perdure.core.message import Precision, Usage
from perdure.models.untrusted import count, mapping, mappings

_FRESH = "input_tokens"
_WRITTEN = "cache_creation_input_tokens"
_READ = "cache_read_input_tokens"
_OUTPUT = "output_tokens"


class Count:
    """What has been told so far."""

    __slots__ = ("_told", "is_complete")

    def __init__(self) -> None:
        self._told: dict[str, Any] = {}
        self.is_complete = False
        """Whether the number of tokens that were written is the last one."""

    def add(self, usage: Any, *, last: bool) -> None:
        """What is told now. A number that is missing, or null, leaves the one before."""
        told = mapping(usage)
        self._told |= {name: value for name, value in told.items() if value is not None}
        self.is_complete = self.is_complete or (last and _OUTPUT in told)

    @property
    def usage(self) -> Usage | None:
        """All of it; nothing when nothing but zeros was told."""
        told = self._told
        # The provider may have summed up the conversation for itself; the totals leave out what that took.
        rounds = [told, *[each for each in mappings(told.get("iterations")) if each.get("type") == "compaction"]]
        fresh, written, read, output = (
            sum([count(each.get(name)) for each in rounds]) for name in (_FRESH, _WRITTEN, _READ, _OUTPUT)
        )
        taken = fresh + written + read
        if not taken + output:
            return None
        thought = count(mapping(told.get("output_tokens_details")).get("thinking_tokens"))
        precision: Precision = "exact" if self.is_complete and taken else "partial"
        return Usage(taken, output, read, written, thought, precision)
