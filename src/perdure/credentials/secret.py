"""The `Secret` class, a value that is not shown by accident, and checks of the names and values of secrets."""

from typing import NoReturn

from perdure.core import argument_checks
from perdure.core.error import ConfigError

MIN_SECRET_LENGTH = 4
"""Minimum length of a value: shorter ones occur in ordinary text, and could not be redacted."""


class Secret:
    """A secret text that only `reveal` returns: `repr`, formatting, JSON and pickling do not show it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        if not isinstance(value, str):
            message = f"Secret(<{type(value).__name__}>): give text"  # without the value, which may be a secret too
            raise ConfigError(message)
        self._value = value

    def reveal(self) -> str:
        """Return the secret text. Pass it only to the code that needs it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        from hmac import compare_digest  # at first use: it loads OpenSSL

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


def check_secret_name(call: str, name: object) -> None:
    """Raise `ConfigError` unless this can be the name of a secret, which is used in a placeholder `{{name}}`."""
    from .secret_placeholders import NAME

    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        argument_checks.raise_config_error(
            call, "name", name, "name a credential with letters, digits, `_`, `-` and `.`"
        )


def check_secret_value(name: str, value: object) -> str:
    """Return the value of a secret as text; raise `ConfigError` if it is too short or not valid text.

    The error does not contain the secret.
    """
    plain = value.reveal() if isinstance(value, Secret) else value
    if not isinstance(plain, str):
        _raise_bad_value(name, f"is a {type(plain).__name__}, not text", "keep it as text")
    if len(plain.strip()) < MIN_SECRET_LENGTH:
        _raise_bad_value(
            name,
            f"has fewer than {MIN_SECRET_LENGTH} characters, which occur in ordinary text too: it could not be "
            "redacted from the results of tools",
            "use a longer value",
        )
    try:
        plain.encode()
    except UnicodeEncodeError:
        _raise_bad_value(name, "contains a lone surrogate, which is not valid text", "store it again as UTF-8")
    return plain


def _raise_bad_value(name: str, problem: str, advice: str) -> NoReturn:
    message = f"the value of the credential {name!r} {problem}; {advice}"
    raise ConfigError(message)
