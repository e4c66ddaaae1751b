"""One memory of every value that was handed out, and the choke point in front of whatever is shown or kept.

Above: `wrapper.py`, `model.py`, assembly. Below: `scrub.py`. A value that one tool was given may turn up in what
another one returns, in what the model says, in an error of the provider: so an agent has one redactor, and asks it
everywhere. As long as nothing was handed out, it hands on whatever it is given.
"""

import inspect
from collections.abc import Iterable
from typing import TypeVar, cast

from windlass.core.error import ToolError
from windlass.core.event import Event

from .scrub import Scrubber
from .secret import checked
from .vault import Vault, known_names

T = TypeVar("T")
E = TypeVar("E", bound=Event)

MOST_VALUES = 32
"""Of one name: a credential that is renewed all the time would fill the memory; the oldest values are forgotten."""


class Redactor:
    """Remembers values, and takes them out of things."""

    __slots__ = ("_scrubber", "_values")

    def __init__(self) -> None:
        self._values: dict[str, list[str]] = {}
        self._scrubber: Scrubber | None = None

    def __repr__(self) -> str:
        return f"Redactor({', '.join(self._values)})"

    @property
    def scrubber(self) -> Scrubber | None:
        """What takes the values out that are known by now; `None` when there are none."""
        if self._scrubber is None and self._values:  # made at first use: it takes some milliseconds
            self._scrubber = Scrubber([(name, value) for name, values in self._values.items() for value in values])
        return self._scrubber

    def learn(self, name: str, value: str) -> None:
        """Remember a value, and take it out of everything from now on."""
        known = self._values.get(name, [])
        if value not in known:
            self._values[name] = [*known, checked(name, value)][-MOST_VALUES:]
            self._scrubber = None

    async def resolve(self, vault: Vault, names: Iterable[str]) -> dict[str, str]:
        """The values of these names, remembered. Raises `ToolError` for a name that the vault does not know."""
        values: dict[str, str] = {}
        for name in names:
            found = vault.resolve(name)
            value = await found if inspect.isawaitable(found) else found
            if value is None:
                raise ToolError(await _unknown(vault, name))
            values[name] = checked(name, value)
            self.learn(name, values[name])
        return values

    def text(self, text: str) -> str:
        """A text without the values."""
        scrubber = self.scrubber
        return text if scrubber is None else scrubber.text(text)

    def value(self, value: T) -> T:
        """Anything without the values; see `Scrubber.value`."""
        scrubber = self.scrubber
        return value if scrubber is None else cast("T", scrubber.value(value))

    def event(self, event: E) -> E:
        """An event without the values, before it is stored or shown.

        Deltas are looked at one by one: a value that lies across several is taken out by `scrubbed_model`, which can
        hold back what is not clear yet.
        """
        scrubber = self.scrubber
        return event if scrubber is None else cast("E", scrubber.value(event))

    def error(self, error: BaseException) -> BaseException:
        """An error without the values, its chain and its frames."""
        scrubber = self.scrubber
        if scrubber is None:
            return error
        from .scrub_error import scrubbed_error

        return scrubbed_error(error, scrubber)


async def _unknown(vault: Vault, name: str) -> str:
    names = await known_names(vault)
    known = f"known names are {', '.join(map(repr, names))}" if names else "no names are known"
    return f"unknown credential {name!r}, {known}"
