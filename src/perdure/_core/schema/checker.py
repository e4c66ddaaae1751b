"""Checks of JSON values against a raw JSON Schema, by jsonschema-rs, with a bound on the work of each check.

Schemas may come from elsewhere, and values from a model. A schema that could take too long is refused when its checker
is made; a value that could is refused when it is checked; and problems are only listed where there cannot be too many
of them, since jsonschema-rs builds all errors before it returns the first.
"""

import re
from itertools import islice
from typing import Any

from perdure._core.values.error import ConfigError

from .definitions import JsonSchema
from .problems import MAX_KEPT_PROBLEMS, Problem, problems_from_schema_error
from .work_bound import (
    FEW_CHECKS,
    MAX_CHECKS,
    MAX_REFERENCE_CHAIN,
    MAX_VALUE_DEPTH,
    count_values,
    estimate_validation_cost,
    is_nested_deeper,
)

MAX_LISTED_CHECKS = 50_000
"""A value that may need more checks is reported with its first problem only."""
BACKTRACK_LIMIT = 10_000
"""A pattern that needs more steps for one text is not matched at all; patterns may be untrusted."""

_IS_TOLD_BY_COMPILING = re.compile(rb'"\$|"pattern').search
"""References, other versions of JSON Schema, and patterns: whether they can be used is known once they are compiled."""
_LARGE_VALUE_COUNT = 2_000  # a value with more values inside it is reported with its first problem only
_FEW_CHECKS_PER_VALUE = 16  # with so few, a check takes no longer than parsing the value did
_MAYBE_MORE = Problem("", "there may be more problems; only the first one of so large a value is reported")
_TOO_MANY_FORMS = Problem("", "does not match the schema; it has too many forms to tell which part is wrong")
_TOO_MUCH = Problem("", "has too many values to be checked against its schema; send fewer at once")


def check_simple_schema(schema: JsonSchema, text: bytes) -> bool:
    """Return True if a JSON Schema, which is also given as text, can be used; False if only compiling it tells.

    Raises `ConfigError` for a simple one that is invalid. None of few parts without references is too costly.
    """
    import jsonschema_rs

    parts = text.count(b"{") + text.count(b"true") + text.count(b"false")
    if parts > FEW_CHECKS or _IS_TOLD_BY_COMPILING(text) or is_nested_deeper(schema, MAX_REFERENCE_CHAIN):
        return False
    try:
        jsonschema_rs.meta.validate(schema)
    except ValueError as error:
        raise ConfigError(_format_schema_error(error)) from error
    return True


class SchemaChecker:
    """A compiled JSON Schema that checks values with bounded work."""

    __slots__ = ("_cost", "_validator", "schema")

    def __init__(self, schema: JsonSchema, *, validate_formats: bool = False) -> None:
        """Compile a schema. Raises `ConfigError` for one that is invalid, or that could take too long to check."""
        self.schema = schema
        self._cost = estimate_validation_cost(schema)
        try:
            self._validator = _make_validator(
                schema, validate_formats=validate_formats, pattern_bytes=self._cost.pattern_bytes
            )
        except ValueError as error:
            raise ConfigError(_format_schema_error(error)) from error
        if self._cost.unresolved:
            message = (
                f"a JSON Schema refers to {self._cost.unresolved[0]!r}, so that its cost cannot be told: "
                "refer to its own parts as in '#/$defs/name'"
            )
            raise ConfigError(message)

    def find_problems(self, value: Any) -> list[Problem]:
        """Return the problems of a value, empty if it is valid. Raises `ValueError` if the value cannot be checked."""
        cost = self._cost
        if cost.max_depth < MAX_VALUE_DEPTH and is_nested_deeper(value, cost.max_depth):
            message = f"is nested more than {cost.max_depth} levels deep, which would take too long to check"
            return [Problem("", message)]
        if cost.checks_per_value > _FEW_CHECKS_PER_VALUE:
            most = MAX_CHECKS // cost.checks_per_value
            if count_values(value, most) > most:
                return [_TOO_MUCH]
        return [] if self._validator.is_valid(value) else self._list_problems(value)

    def _list_problems(self, value: Any) -> list[Problem]:
        """Return the problems of an invalid value, as many as can be found without too much work."""
        most = min(_LARGE_VALUE_COUNT, MAX_LISTED_CHECKS // self._cost.errors_per_value)
        is_large = count_values(value, most) > most
        if is_large and self._cost.has_unions:  # the error of a union has all errors of all its forms
            return [_TOO_MANY_FORMS]
        errors = _find_first_error(self._validator, value) if is_large else self._validator.iter_errors(value)
        problems = (problem for error in errors for problem in problems_from_schema_error(error, self.schema))
        found = list(dict.fromkeys(islice(problems, MAX_KEPT_PROBLEMS)))
        return [*found, _MAYBE_MORE] if found and is_large else found


def _make_validator(schema: JsonSchema, *, validate_formats: bool, pattern_bytes: int) -> Any:
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        schema,
        validate_formats=validate_formats,
        retriever=_refuse_reference,
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT, size_limit=pattern_bytes),
    )


def _refuse_reference(address: str) -> Any:
    message = f"it refers to {address!r}, and references are not fetched: copy that schema into $defs"
    raise ValueError(message)


def _find_first_error(validator: Any, value: Any) -> list[Exception]:
    import jsonschema_rs

    errors: list[Exception] = []
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        errors.append(error)
    return errors


def _format_schema_error(error: Exception) -> str:
    path = "/".join(map(str, getattr(error, "instance_path", ())))
    place = f" at {path!r}" if path else ""
    return f"this is not a JSON Schema that can be used{place}: {getattr(error, 'message', error)}"
