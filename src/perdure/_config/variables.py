"""Replace `${NAME}` and `${NAME:-default}` in settings by the values of environment variables.

The value of a variable is inserted as it is: nothing in it is expanded again.
"""

import re
from collections.abc import Mapping
from typing import Final

from perdure._core.values.error import ConfigError

MAX_CHARACTERS: Final = 1024 * 1024
"""Limit on the characters of all texts of a file together, after expansion."""

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def list_variable_names(text: str) -> list[str]:
    """Return the names of the environment variables that a text takes, each once, in order."""
    return list(dict.fromkeys([match[1] for match in _VARIABLE.finditer(text)]))


class VariableExpander:
    """Replaces `${NAME}` by environment variables in the texts of one file, and limits their total length."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._room = MAX_CHARACTERS

    def __call__(self, text: str) -> str:
        """Return `text` with each `${NAME}` replaced. Raises `ConfigError` if a variable is neither set nor has a
        default.
        """
        parts: list[str] = []
        end = 0
        for match in _VARIABLE.finditer(text):
            parts += [text[end : match.start()], self._value(match[1], match[2])]
            end = match.end()
        parts.append(text[end:])
        self._room -= sum(map(len, parts))
        if self._room < 0:
            raise ConfigError(
                f"the texts of this file have more than {MAX_CHARACTERS:,} characters: use fewer variables"
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
