"""Metaclass of option structs such as `Agent`: a misspelt option raises `ConfigError`.

Programs build these structs from keyword arguments.

msgspec refuses a misspelt keyword with a bare `TypeError`, which does not even name the class. Here it becomes a
`ConfigError` with the class and the option that was probably meant. Options that are right cost one more call.
"""

from typing import TYPE_CHECKING, Any

from msgspec import StructMeta

from . import argument_checks
from .error import ConfigError


class OptionClass(StructMeta):
    """Metaclass of a struct whose constructor raises `ConfigError` for an option that it does not have."""

    if TYPE_CHECKING:
        ...  # type checkers know the constructor from the fields
    else:

        def __call__(cls, *args: Any, **options: Any) -> Any:  # noqa: N805 - its instances are classes
            """Build an object. Raises `ConfigError` for options that are unknown, missing or given by position."""
            try:
                return StructMeta.__call__(cls, *args, **options)
            except TypeError as error:
                if error.__traceback__.tb_next is not None:  # raised by code of ours or of the caller
                    raise
                raise ConfigError(_explain_options(cls, options, error)) from None


def _explain_options(cls: Any, options: dict[str, Any], error: TypeError) -> str:
    """Return the message for options that a class refuses: which class, which option, and what was probably meant."""
    known: tuple[str, ...] = cls.__struct_fields__
    unknown = [name for name in options if name not in known]
    if not unknown:
        return f"{cls.__name__}(…): {error}; its options are {', '.join(known)}"
    name = unknown[0]
    advice = argument_checks.suggest_name(name, known) or f"its options are {', '.join(known)}"
    return f"{cls.__name__}({name}=…): there is no option {name!r}: {advice.rstrip()}"
