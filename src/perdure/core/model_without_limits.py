"""A run's model without limit checks, for internal callers (loop, side requests, compaction) that check by themselves.

Engines and tools get `Run.model`, which checks limits, stores and counts. An architecture test lists the modules that
may import this one.
"""

from typing import TYPE_CHECKING

from .model import Model

if TYPE_CHECKING:
    from .run import Run


def get_model_without_limits(run: "Run") -> Model:
    """Return the model of a run without limit checks, for a caller that checks limits, stores and counts by itself.

    Once the session or one of its subagents has secrets, it redacts them in requests and in replies.
    """
    return run._get_unlimited_model()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - hidden from engines
