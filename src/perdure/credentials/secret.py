"""A value that nobody gets to see by accident, and what is too short to be one. Above: vaults. Below: core."""

from typing import NoReturn

from perdure.core import check
from perdure.core.error import ConfigError

SHORTEST = 4
"""A value with fewer characters than this is refused: it stands in ordinary text, and could not be told from it."""


class Secret:
    """A value that shows itself to those alone who call `reveal`: not in a `repr`, a format, JSON or a pickle."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        if not isinstance(value, str):
            message = f"Secret(<{type(value).__name__}>): give text"  # without the value, which may be a secret too
            raise ConfigError(message)
        self._value = value

    def reveal(self) -> str:
        """The value. Hand it to whoever needs it, and to nobody else."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        from hmac import compare_digest  # at first use: it loads OpenSSL's

        return compare_digest(self._value.encode(errors="replace"), other._value.encode(errors="replace"))

    def __hash__(self) -> int:
        return hash(self._value)

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, _memo: object) -> "Secret":
        return self

    def __reduce__(self) -> NoReturn:
        message = "a Secret cannot be pickled or stored: keep its name, and ask the vault where it is needed"
        raise TypeError(message)


def check_name(call: str, name: object) -> None:
    """Refuse a name that no placeholder could hold."""
    from .substitute import NAME

    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        check.refuse(call, "name", name, "name a credential with letters, digits, `_`, `-` and `.`")


def checked(name: str, value: object) -> str:
    """The value of a credential, if it is one that can be kept out of what is shown. Never shows the value."""
    plain = value.reveal() if isinstance(value, Secret) else value
    if not isinstance(plain, str):
        _refuse(name, f"is a {type(plain).__name__}, and no text", "keep it as text")
    if len(plain.strip()) < SHORTEST:
        _refuse(
            name,
            f"has fewer than {SHORTEST} characters, which stand in ordinary text too: it could not be kept out of what "
            "the tool returns",
            "use a longer value",
        )
    try:
        plain.encode()
    except UnicodeEncodeError:
        _refuse(name, "holds a lone surrogate, which is no valid text", "store it again as UTF-8")
    return plain


def _refuse(name: str, problem: str, advice: str) -> NoReturn:
    message = f"the value of the credential {name!r} {problem}; {advice}"
    raise ConfigError(message)
