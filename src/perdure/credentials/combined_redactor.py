"""`CombinedRedactor`: a redactor for several agents, which redacts the secrets known to any of their redactors.

Each agent with a vault has its own redactor. Agents that work together share one: a value that any of them was given is
redacted from all that any of them stores, shows, sends or receives.
"""

from weakref import WeakSet

from perdure.core.model import Model

from .fixed_secrets_redactor import FixedSecretsRedactor
from .model_redaction import redacted_model
from .redactor import Redactor


class CombinedRedactor(Redactor):
    """Redactor that combines others: it redacts every secret that one of them knows, also one learned later."""

    __slots__ = ("_members", "_only")

    def __init__(self) -> None:
        super().__init__()
        self._members: WeakSet[Redactor] = WeakSet()
        self._only: Redactor | None = None

    def __contains__(self, redactor: object) -> bool:
        return redactor in self._members

    def add(self, redactor: Redactor) -> None:
        """Add a member, whose present and future secrets are redacted from now on."""
        if redactor in self:
            return
        self._only = None if self._members else redactor
        self._members.add(redactor)
        redactor.share_with(self)

    @property
    def fixed_redactor(self) -> FixedSecretsRedactor | None:
        """Filter that redacts the secrets of all members; `None` if there are none yet."""
        return (
            super().fixed_redactor if self._only is None else self._only.fixed_redactor
        )  # which is made already, as a rule

    def model(self, model: Model) -> Model:
        """Wrap a model so that the secrets of all members are redacted from its requests and replies."""
        return redacted_model(model, self)
