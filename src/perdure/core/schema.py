"""Type hints to JSON Schema, and values back through them: the one module that knows the validators.

Above: `tool.py`, structured output. Below: msgspec for what it can express, pydantic for the rest if it is installed,
jsonschema-rs (at first use) for raw schemas and for telling a model all that is wrong, since msgspec stops at the first
thing. `signature.py` looks at functions, `problem.py` finds the words, `arguments.py` reads the text of a call.
"""

import functools
import inspect
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, Optional, Protocol

import msgspec
from msgspec.structs import asdict

from .arguments import arguments_hash, parse_object
from .definitions import (
    REF,
    JsonSchema,
    hoisted,
    is_array,
    is_object,
    with_definitions,
    with_type_at_root,
    with_typed_enums,
)
from .error import ConfigError
from .hint import Survey, split_description, translated
from .plain import excerpt
from .problem import (
    Invalid,
    Problem,
    from_msgspec_error,
    from_pydantic_error,
    from_schema_error,
    missing,
    under,
    unexpected,
)
from .signature import NO_DEFAULT, Parameter, Signature, read_signature

__all__ = [
    "Invalid",
    "Parameters",
    "Problem",
    "arguments_hash",
    "check_value",
    "convert",
    "for_type",
    "from_function",
    "from_json_schema",
    "parse_object",
]

_PathLike: Any = os.PathLike
_fspath: Callable[[Any], Any] = os.fspath
_LARGE = 2_000  # values within a value, from which on not everything is told that is wrong with it
_MAYBE_MORE = Problem("", "there may be more; of so large a value only the first problem is told")
_BACKTRACKS = 100_000  # a pattern that needs more is not matched at all; patterns may come from strangers


class Parameters(ABC):
    """What a tool takes: described for the model, and checked when it is called."""

    __slots__ = ("json_schema",)

    def __init__(self, json_schema: JsonSchema) -> None:
        self.json_schema = json_schema
        """An object schema, as it is sent to the model."""

    @abstractmethod
    def parse(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments that were given, checked and converted. Raises `Invalid` with every problem."""


def from_function(
    function: Callable[..., Any], *, skip: Collection[str] = (), context_type: type | None = None
) -> tuple[Parameters, str | None]:
    """What a function takes, from its type hints, `Annotated` and docstring; and the parameter that wants the context.

    `skip` are parameters to leave out, `context_type` annotates the one that is not the model's to fill in.
    """
    signature = read_signature(function, skip=skip, context_type=context_type)
    return _Typed(signature), signature.context


def from_json_schema(schema: JsonSchema) -> Parameters:
    """What a tool takes, from a raw JSON Schema. References to other documents are refused, never fetched."""
    try:
        own: JsonSchema = msgspec.json.decode(msgspec.json.encode(schema), type=dict[str, Any])
    except Exception as error:
        message = f"a schema that is no JSON object cannot be sent to a model ({error}): {excerpt(schema)}"
        raise ConfigError(message) from error
    if own.setdefault("type", "object") != "object":
        message = f'the parameters of a tool are an object, so their schema needs "type": "object": {excerpt(schema)}'
        raise ConfigError(message)
    try:
        return _Raw(own, _validator(own, validate_formats=False))
    except ValueError as error:
        raise ConfigError(_schema_message(error)) from error


def for_type(type_: Any) -> JsonSchema:
    """The JSON Schema of a type, with the type itself at the root and what it refers to under `$defs`."""
    schema: JsonSchema = msgspec.json.decode(msgspec.json.encode(_reader_for(type_).schema))
    return with_type_at_root(schema)


def convert(value: Any, type_: Any) -> Any:
    """A value out of JSON as an instance of a type: strictly if that works, else leniently (`"5"` for 5).

    Raises `Invalid` with every problem.
    """
    return _reader_for(type_).read(value)


def check_value(value: Any, schema: JsonSchema) -> None:
    """Raise `Invalid`, with every problem, when a JSON value is not what a raw JSON Schema says."""
    try:
        validator = _validator(schema, validate_formats=False)
    except ValueError as error:
        raise ConfigError(_schema_message(error)) from error
    problems = _schema_problems(validator, value, schema)
    if problems:
        raise Invalid(problems)


class _Field(msgspec.Struct, frozen=True):
    reader: "_Reader"
    required: bool


class _Typed(Parameters):
    """The parameters of a function."""

    __slots__ = ("_fields", "_hooked", "_size", "_struct")

    def __init__(self, signature: Signature) -> None:
        self._fields: dict[str, _Field] = {}
        properties: JsonSchema = {}
        definitions: JsonSchema = {}
        for parameter in signature.parameters:
            where = f"parameter {parameter.name!r} of {signature.name}"
            annotation, text = split_description(parameter.annotation)
            if parameter.default is None and translated(annotation) is not Any:
                annotation = Optional[annotation]  # noqa: UP045 - it is a value here
            reader = _reader(annotation, where)
            self._fields[parameter.name] = _Field(reader, parameter.default is NO_DEFAULT)
            properties[parameter.name] = _property(parameter, text, hoisted(reader.schema, definitions), where)
        self._size = len(self._fields)
        self._hooked = any(isinstance(field.reader, _Native) and field.reader.hooked for field in self._fields.values())
        self._struct = _struct(self._fields)
        required = [name for name, field in self._fields.items() if field.required]
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        super().__init__(with_definitions(schema, definitions))

    def parse(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._struct is None:
            return self._parse_each(arguments)
        try:
            # Without the hook where it is not needed: to hand it over takes longer than to convert two arguments.
            if self._hooked:
                parsed = msgspec.convert(arguments, self._struct, dec_hook=_path)
            else:
                parsed = msgspec.convert(arguments, self._struct)
        except Exception:  # noqa: BLE001 - the classes of callers are run here too
            return self._parse_each(arguments)
        if len(arguments) == self._size:
            return asdict(parsed)
        return {name: getattr(parsed, name) for name in arguments}

    def _parse_each(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """One by one, so that lenience towards one argument does not change the others, and all problems are found."""
        parsed: dict[str, Any] = {}
        problems = [missing(name) for name, field in self._fields.items() if field.required and name not in arguments]
        problems += unexpected("", [name for name in arguments if name not in self._fields], self._fields)
        for name, field in self._fields.items():
            if name not in arguments:
                continue
            value = arguments[name]
            try:
                parsed[name] = field.reader.read(value)
            except Invalid as invalid:
                # Many models write null for "not given".
                if value is not None or field.required:
                    problems += under(name, invalid.problems)
        if problems:
            raise Invalid(problems)
        return parsed


class _Raw(Parameters):
    """The parameters that a raw JSON Schema describes."""

    __slots__ = ("_validator",)

    def __init__(self, json_schema: JsonSchema, validator: Any) -> None:
        super().__init__(json_schema)
        self._validator = validator

    def parse(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            if self._validator.is_valid(arguments):
                return arguments
            problems = _schema_problems(self._validator, arguments, self.json_schema)
        except ValueError as error:  # a lone surrogate, or more levels than the validator goes down
            problems = [Problem("", f"cannot be checked: {error}")]
        raise Invalid(problems)


class _Reader(Protocol):
    """The way in for one type."""

    schema: JsonSchema

    def read(self, value: Any) -> Any:
        """The value as that type. Raises `Invalid`."""


class _Native:
    """The way in for a type that msgspec can express."""

    __slots__ = ("_validator", "hooked", "native", "schema")

    def __init__(self, annotation: Any, survey: Survey) -> None:
        self.hooked = False
        """Whether something in it is not msgspec's, but ours."""
        self.native = translated(annotation)
        self._validator: Any = None
        types = [self.native, *(each.annotation for each in survey.described)]
        schemas, definitions = msgspec.json.schema_components(types, schema_hook=self._custom_schema)
        for reference, described in zip(schemas[1:], survey.described, strict=True):
            described.add_to(definitions[reference["$ref"].removeprefix(REF)])
        self.schema = with_typed_enums(with_definitions(schemas[0], definitions))

    def _custom_schema(self, kind: Any) -> JsonSchema:
        if not issubclass(kind, _PathLike) or inspect.isabstract(kind):
            message = f"{kind.__qualname__} is a class of its own"
            raise TypeError(message)
        self.hooked = True
        return {"type": "string", "format": "path"}

    def read(self, value: Any) -> Any:
        try:
            return msgspec.convert(value, self.native, dec_hook=_path, str_keys=True)
        except Exception:  # noqa: BLE001, S110 - the classes of callers are run here too; it is tried again below
            pass
        try:
            found = msgspec.convert(value, self.native, strict=False, dec_hook=_path, str_keys=True)
        except Exception as error:  # noqa: BLE001 - as above
            raise Invalid(self._problems(value, error)) from None
        if type(found) is float and not math.isfinite(found):
            raise Invalid([Problem("", f"expected a finite number, got {excerpt(value)}")])
        return found

    def _problems(self, value: Any, error: Exception) -> list[Problem]:
        try:
            if self._validator is None:
                self._validator = _validator(self.schema, validate_formats=True)
            return _schema_problems(self._validator, value, self.schema) or [from_msgspec_error(error)]
        except Exception:  # noqa: BLE001 - a value or a schema that jsonschema-rs does not take
            return [from_msgspec_error(error)]


class _Pydantic:
    """The way in for a type that pydantic can express, by pydantic's own rules."""

    __slots__ = ("_adapter", "schema")

    def __init__(self, annotation: Any) -> None:
        import pydantic

        self._adapter: Any = pydantic.TypeAdapter(annotation)
        self.schema: JsonSchema = self._adapter.json_schema()

    def read(self, value: Any) -> Any:
        import json

        try:
            # As JSON, which pydantic reads as it should: a date, in a strict model too, is text there.
            return self._adapter.validate_json(json.dumps(value))
        except Exception as error:  # noqa: BLE001 - the validators of callers are run here
            raise Invalid(from_pydantic_error(error)) from None


def _reader(annotation: Any, where: str) -> _Reader:
    """The way in for a type; `where` says in an error what has that type."""
    try:
        survey = Survey(annotation)
        if not survey.needs_pydantic:
            return _Native(annotation, survey)
        reason = "it is made with pydantic"
    except Exception as error:  # noqa: BLE001 - as many kinds as there are types
        reason = str(error)
    problem = f"{where} has the type {annotation!r}, which msgspec cannot express ({reason})"
    advice = "use a msgspec.Struct, a dataclass or a TypedDict"
    try:
        return _Pydantic(annotation)
    except ImportError as error:
        message = f"{problem}: install pydantic, or {advice}"
        raise ConfigError(message) from error
    except Exception as error:
        its_reason = str(error).partition("\n")[0]
        message = f"{problem}, nor can pydantic ({its_reason}): {advice}"
        raise ConfigError(message) from error


@functools.lru_cache(maxsize=256, typed=True)
def _cached_reader(type_: Any) -> _Reader:
    return _reader(type_, "the output")


def _reader_for(type_: Any) -> _Reader:
    try:
        return _cached_reader(type_)
    except TypeError:  # an annotation may hold what cannot be hashed
        return _reader(type_, "the output")


def _path(kind: type, value: Any) -> Any:
    if not isinstance(value, str):
        message = f"expected a path as a string, got {excerpt(value)}"
        raise TypeError(message)
    return kind(value)


def _struct(fields: dict[str, _Field]) -> type[msgspec.Struct] | None:
    """All fields at once, which is fast, if msgspec can read all of them."""
    members: list[Any] = []
    for name, field in fields.items():
        if not isinstance(field.reader, _Native):
            return None
        members.append((name, field.reader.native) if field.required else (name, field.reader.native, msgspec.UNSET))
    return msgspec.defstruct("Arguments", members, kw_only=True, forbid_unknown_fields=True)


def _property(parameter: Parameter, text: str, schema: JsonSchema, where: str) -> JsonSchema:
    """The schema of one parameter, with its description and its default."""
    description = text or schema.get("description") or parameter.description
    if description:
        schema = {**schema, "description": description}
    default = parameter.default
    if default is NO_DEFAULT:
        return schema
    if type(default).__module__.startswith("pydantic.") and type(default).__name__ == "FieldInfo":
        message = f"{where} has {default!r} as its default, which Python would pass on: use Annotated[…, Field(…)]"
        raise ConfigError(message)
    try:
        plain = msgspec.json.decode(msgspec.json.encode(default, enc_hook=_plain_default))
    except Exception:  # noqa: BLE001 - a default that JSON cannot hold is left to Python
        return schema
    return {**schema, "default": plain}


def _plain_default(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return _fspath(value)


def _validator(schema: JsonSchema, *, validate_formats: bool) -> Any:
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        schema,
        validate_formats=validate_formats,
        retriever=_refuse,
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS),
    )


def _refuse(address: str) -> Any:
    message = f"it refers to {address!r}, and nothing is fetched: copy what is there into $defs"
    raise ValueError(message)


def _schema_problems(validator: Any, value: Any, schema: JsonSchema) -> list[Problem]:
    """All that jsonschema-rs finds; in a very large value only the first thing, since all could take minutes."""
    is_large = _is_large(value)
    errors = _first_error(validator, value) if is_large else validator.iter_errors(value)
    found = list(dict.fromkeys(problem for error in errors for problem in from_schema_error(error, schema)))
    return [*found, _MAYBE_MORE] if found and is_large else found


def _first_error(validator: Any, value: Any) -> list[Exception]:
    try:
        validator.validate(value)
    except ValueError as error:
        if not hasattr(error, "instance_path"):
            raise
        return [error]
    return []


def _is_large(value: Any) -> bool:
    left = _LARGE
    pending: list[Any] = [value]
    while pending and left >= 0:
        each = pending.pop()
        inner: Collection[Any] = each.values() if is_object(each) else each if is_array(each) else ()
        left -= len(inner)
        pending += inner
    return left < 0


def _schema_message(error: Exception) -> str:
    path = "/".join(map(str, getattr(error, "instance_path", ())))
    place = f" at {path!r}" if path else ""
    return f"this is not a JSON Schema that can be used{place}: {getattr(error, 'message', error)}"
