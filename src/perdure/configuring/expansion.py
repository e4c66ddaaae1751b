"""Variables of the environment in texts: `${NAME}`, and `${NAME:-words}` with a default. Above: `mcp_servers.py`.

What a variable says is put in as it is: nothing in it is expanded again. Below: nothing.
"""

import re
from collections.abc import Mapping
from typing import Final

from perdure.core.error import ConfigError

MOST_CHARACTERS: Final = 1024 * 1024
"""Of all texts of a file together, once they are expanded."""

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class Expansion:
    """Expands the texts of one file, within one bound."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._room = MOST_CHARACTERS

    def __call__(self, text: str) -> str:
        """The text with each variable in its place. Raises `ConfigError`, which names the one that is missing."""
        parts: list[str] = []
        end = 0
        for match in _VARIABLE.finditer(text):
            parts += [text[end : match.start()], self._value(match[1], match[2])]
            end = match.end()
        parts.append(text[end:])
        self._room -= sum(map(len, parts))
        if self._room < 0:
            raise ConfigError(
                f"the texts of this file have more than {MOST_CHARACTERS:,} characters: use fewer variables"
            )
        return "".join(parts)

    def _value(self, name: str, default: str | None) -> str:
        value = self._environment.get(name)
        if value:
            return value
        if default is not None:
            return default
        if value is None:
            raise ConfigError(f"the variable {name} is not set: set it, or write ${{{name}:-default}}")
        return value
