"""What several agents must not give away, in one memory. Above: assembly. Below: `redactor.py`, `model.py`.

Each agent with a vault has a redactor of its own. Agents that work together are a family: what one of them was given is
taken out of whatever any of them stores, shows, says or is told.
"""

from weakref import WeakSet

from perdure.core.model import Model

from .model import scrubbed_model
from .redactor import Redactor
from .scrub import Scrubber


class FamilyRedactor(Redactor):
    """Knows what its members know, and hears at once of whatever they learn."""

    __slots__ = ("_members", "_only")

    def __init__(self) -> None:
        super().__init__()
        self._members: WeakSet[Redactor] = WeakSet()
        self._only: Redactor | None = None

    def __contains__(self, redactor: object) -> bool:
        return redactor in self._members

    def add(self, redactor: Redactor) -> None:
        """Hide what this one knows, and what it will know."""
        if redactor in self:
            return
        self._only = None if self._members else redactor
        self._members.add(redactor)
        redactor.share_with(self)

    @property
    def scrubber(self) -> Scrubber | None:
        """What takes the values of all of them out; `None` when there are none."""
        return super().scrubber if self._only is None else self._only.scrubber  # which is made already, as a rule

    def model(self, model: Model) -> Model:
        """The same model, which is told none of the values, and in whose words none is kept."""
        return scrubbed_model(model, self)
