"""One memory of every value that was handed out, and the choke point in front of whatever is shown or kept.

Above: `wrapper.py`, `model.py`, assembly. Below: `scrub.py`. A value that one tool was given may turn up in what
another one returns, in what the model says, in an error of the provider: so an agent has one redactor, and asks it
everywhere. As long as nothing was handed out, it hands on whatever it is given.
"""

import inspect
import logging
from collections.abc import Iterable
from typing import TypeVar, cast
from weakref import WeakSet

from perdure.core.error import ToolError
from perdure.core.event import Event

from .scrub import ScrubbedStream, Scrubber
from .secret import Secret, checked
from .vault import Vault, known_names

T = TypeVar("T")
E = TypeVar("E", bound=Event)

logger = logging.getLogger("perdure")

MOST_VALUES = 32
"""Of one name: a credential that is renewed all the time would fill the memory; the oldest values are forgotten."""


class Redactor:
    """Remembers values, and takes them out of things."""

    __slots__ = ("__weakref__", "_confidants", "_scrubber", "_values")

    def __init__(self) -> None:
        self._values: dict[str, list[str]] = {}
        self._scrubber: Scrubber | None = None
        self._confidants: WeakSet[Redactor] = WeakSet()
        """Who is told whatever this one learns."""

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
            for each in list(self._confidants):
                each.learn(name, value)

    def share_with(self, other: "Redactor") -> None:
        """Tell another one what this one knows, and whatever it will learn, for as long as there is that other one."""
        self._confidants.add(other)
        for name, values in self._values.items():
            for value in values:
                other.learn(name, value)

    async def resolve(self, vault: Vault, names: Iterable[str]) -> dict[str, str]:
        """The values of these names, remembered. Raises `ToolError` for a name that the vault does not know."""
        values: dict[str, str] = {}
        for name in names:
            value = await _value_of(vault, name)
            if value is None:
                raise ToolError(await _unknown(vault, name))
            values[name] = checked(name, value)
            self.learn(name, values[name])
        return values

    async def recall(self, vault: Vault, names: Iterable[str]) -> None:
        """Remember the values of names that may have been handed out before, by a process that is gone perhaps.

        A name for which there is no value any more is left out, whatever the vault says about it.
        """
        for name in names:
            try:
                value = await _value_of(vault, name)
                if value is not None:
                    self.learn(name, checked(name, value))
            except Exception as error:  # noqa: BLE001 - of whatever vault: a run that does not need it must not fail
                logger.warning("credential %r cannot be looked up: %s", name, type(error).__name__)  # no words of it

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

    def stream(self) -> "KnowingStream":
        """For one text that comes in pieces: a value may begin in one and end in another."""
        return KnowingStream(self)

    def error(self, error: BaseException) -> BaseException:
        """An error without the values, its chain and its frames."""
        scrubber = self.scrubber
        if scrubber is None:
            return error
        from .scrub_error import scrubbed_error

        return scrubbed_error(error, scrubber)


class KnowingStream:
    """Takes values out of a text that comes in pieces, also values that its redactor learns meanwhile."""

    __slots__ = ("_redactor", "_stream")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._stream: ScrubbedStream | None = None

    def feed(self, chunk: str) -> str:
        """What is clear by now: all of it, as long as no value is known."""
        scrubber = self._redactor.scrubber
        if scrubber is None:
            return chunk
        self._stream = self._stream or ScrubbedStream(scrubber)
        self._stream.scrubber = scrubber
        return self._stream.feed(chunk)

    def end(self) -> str:
        """The rest, when nothing more comes."""
        return "" if self._stream is None else self._stream.end()


async def _value_of(vault: Vault, name: str) -> str | Secret | None:
    found = vault.resolve(name)
    return await found if inspect.isawaitable(found) else found


async def _unknown(vault: Vault, name: str) -> str:
    names = await known_names(vault)
    known = f"known names are {', '.join(map(repr, names))}" if names else "no names are known"
    return f"unknown credential {name!r}, {known}"
