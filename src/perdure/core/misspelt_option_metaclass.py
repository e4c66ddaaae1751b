"""Metaclass of option structs such as `Agent`: a misspelt option raises `ConfigError`.

Programs build these structs from keyword arguments.

msgspec refuses a misspelt keyword with a bare `TypeError`, which does not even name the class. Here it becomes a
`ConfigError` with the class and the option that was probably meant. Options that are right cost one more call.
"""

from typing import TYPE_CHECKING, Any

from msgspec import NODEFAULT, StructMeta

from . import argument_checks
from .error import ConfigError

if TYPE_CHECKING:
    from inspect import Signature


class UnresolvedSignatureMeta(StructMeta):
    """Metaclass of structs for which `help` works even if annotations name types that are not imported at run time.

    msgspec resolves all annotations for the signature of a struct, so that `inspect.signature` and `help` would raise
    `NameError`. Here those of such a struct are shown as they were written.
    """

    if TYPE_CHECKING:
        ...  # type checkers know the constructor from the fields
    else:

        @property
        def __signature__(cls) -> "Signature":  # noqa: N805 - its instances are classes
            """The signature of the constructor, for `inspect` and `help`."""
            try:
                return StructMeta.__signature__.__get__(cls)
            except NameError:
                return _build_unresolved_signature(cls)


def _build_unresolved_signature(cls: Any) -> "Signature":
    """Build the signature of a struct's constructor with its annotations as they were written."""
    from inspect import Parameter, Signature, get_annotations  # at first use, which few programs have

    hints: dict[str, Any] = {}
    for each in reversed(cls.__mro__):
        hints |= get_annotations(each)
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    by_name = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    parameters = [
        Parameter(
            name,
            Parameter.POSITIONAL_OR_KEYWORD if name in cls.__match_args__ else Parameter.KEYWORD_ONLY,
            default=Parameter.empty if (default := by_name.get(name, NODEFAULT)) is NODEFAULT else default,
            annotation=hints[name],
        )
        for name in names
    ]
    return Signature(parameters)


class StrictOptionsMeta(UnresolvedSignatureMeta):
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
