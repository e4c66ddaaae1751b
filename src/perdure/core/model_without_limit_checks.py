"""A run's model without checks of the run's limits, for internal callers (such as the loop) that check them first.

Engines and tools get `Run.model`, which checks limits, stores and counts. An architecture test lists the modules that
may import this one.
"""

from typing import TYPE_CHECKING

from .model import Model

if TYPE_CHECKING:
    from .run import Run


def get_model_without_limit_checks(run: "Run") -> Model:
    """Return the model of a run without limit checks, for a caller that checks limits, stores and counts by itself.

    Once the session or one of its subagents has secrets, it redacts them in requests and in replies.
    """
    return run._get_unlimited_model()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - hidden from engines
