"""Accumulate the token counts that one response of the Messages API reports. No I/O.

Input is reported in three numbers, uncached, written to the cache and read from it, and none includes another. The
start of a stream has a first estimate; later numbers replace it.
"""

from typing import Any

from perdure.core.message import Precision, Usage
from perdure.models.mistyped_json_fields import as_count, as_dict, as_dicts, as_text

_FRESH = "input_tokens"
_WRITTEN = "cache_creation_input_tokens"
_READ = "cache_read_input_tokens"
_OUTPUT = "output_tokens"


class UsageAccumulator:
    """Accumulator of the token counts in one response of the Messages API; later numbers replace earlier ones."""

    __slots__ = ("_told", "is_complete")

    def __init__(self) -> None:
        self._told: dict[str, Any] = {}
        self.is_complete = False
        """True if the number of output tokens is final."""

    def add(self, usage: Any, *, last: bool) -> None:
        """Merge newer token counts. A missing or null number leaves the earlier one."""
        told = as_dict(usage)
        self._told |= {name: value for name, value in told.items() if value is not None}
        self.is_complete = self.is_complete or (last and _OUTPUT in told)

    @property
    def service_tier(self) -> str:
        """Service tier that was used; empty if the provider does not report it."""
        return as_text(self._told.get("service_tier"))

    @property
    def usage(self) -> Usage | None:
        """Token counts so far; None if all are zero."""
        told = self._told
        # The provider may have compacted the conversation itself; the totals do not include the tokens of that.
        rounds = [told, *[each for each in as_dicts(told.get("iterations")) if each.get("type") == "compaction"]]
        fresh, written, read, output = (
            sum([as_count(each.get(name)) for each in rounds]) for name in (_FRESH, _WRITTEN, _READ, _OUTPUT)
        )
        taken = fresh + written + read
        if not taken + output:
            return None
        thought = as_count(as_dict(told.get("output_tokens_details")).get("thinking_tokens"))
        precision: Precision = "exact" if self.is_complete and taken else "partial"
        return Usage(taken, output, read, written, thought, precision)
