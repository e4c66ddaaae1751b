"""JSON Schemas from type hints, and validation of JSON values against them.

msgspec handles the types that it can express, pydantic (if installed) the others. `checker.py` checks raw
schemas, and finds every problem of a value for the model, since msgspec stops at the first. `signature.py`
inspects functions, `problems.py` writes the messages, `parsing.py` parses the text of a tool call's
arguments.
"""

import functools
import inspect
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Optional, Protocol

import msgspec
from msgspec.structs import asdict

from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import prepare_type, short_repr

from .definitions import (
    REF,
    JsonSchema,
    add_definitions,
    add_enum_types,
    add_schema_defaults,
    has_defaults,
    hoist_definitions,
    inline_root_reference,
)
from .parsing import arguments_hash, parse_arguments
from .problems import (
    Invalid,
    Problem,
    missing_key_problem,
    prefix_problem_paths,
    problem_from_msgspec_error,
    problems_from_pydantic_error,
    unexpected_key_problems,
)
from .signature import (
    NO_DEFAULT,
    FieldClassFinder,
    Parameter,
    Signature,
    read_signature,
    split_description,
    translate_for_msgspec,
)

if TYPE_CHECKING:
    from .checker import SchemaChecker

__all__ = [
    "Invalid",
    "Parameters",
    "Problem",
    "arguments_hash",
    "build_parameters_from_json_schema",
    "check_value",
    "convert_value",
    "json_schema_for_type",
    "parameters_from_function",
    "parse_arguments",
]

MAX_CACHED_CHECKERS = 256
"""The most compiled checkers of raw schemas that are kept."""

_PathLike: Any = os.PathLike
_fspath: Callable[[Any], Any] = os.fspath


class Parameters(ABC):
    """The parameters of a tool: their JSON Schema for the model, and the validation of a call's arguments."""

    __slots__ = ("json_schema",)

    def __init__(self, json_schema: JsonSchema) -> None:
        self.json_schema = json_schema
        """The schema of an object, as it is sent to the model."""

    @abstractmethod
    def parse(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Validate and convert a call's arguments; absent ones stay absent. Raises `Invalid` with every problem."""

    @abstractmethod
    def add_defaults(self, parsed: dict[str, Any]) -> dict[str, Any]:
        """Return validated arguments with the defaults of absent ones, which whoever carries out the call uses."""


def parameters_from_function(
    function: Callable[..., Any], *, skip: Collection[str] = (), context_type: type | None = None
) -> tuple[Parameters, str | None]:
    """Read a function's parameters from its type hints; also return the name of its context parameter, or `None`.

    They are read from type hints, `Annotated` and the docstring. `skip` names parameters to leave out; a parameter
    annotated with `context_type` is the context, which the model does not see.
    """
    signature = read_signature(function, skip=skip, context_type=context_type)
    return build_parameters_from_signature(signature), signature.context


def build_parameters_from_signature(signature: Signature) -> Parameters:
    """Build the `Parameters` of a tool, which describe and validate its arguments, from a function's signature."""
    return _FunctionParameters(signature)


def build_parameters_from_json_schema(schema: JsonSchema) -> Parameters:
    """Return the parameters described by a raw JSON Schema.

    References to other documents are refused, not fetched, and so is a schema that could take too long to check.
    """
    own = _copy_schema(schema)
    if own.setdefault("type", "object") != "object":
        message = (
            f'the parameters of a tool are an object, so their schema needs "type": "object": {short_repr(schema)}'
        )
        raise ConfigError(message)
    return _SchemaParameters(own)


def check_json_schema(schema: JsonSchema) -> JsonSchema:
    """Return a copy of a raw JSON Schema. Raises `ConfigError` if it is invalid, or too costly to check."""
    own = _copy_schema(schema)
    _require_usable_schema(own)
    return own


def _require_usable_schema(schema: JsonSchema) -> None:
    """Raise `ConfigError` for a raw JSON Schema that is invalid, or too costly to check.

    Most are compiled when the first value is checked, as most tools are never called.
    """
    from .checker import check_simple_schema  # at first use: for a quick start

    if not check_simple_schema(schema, msgspec.json.encode(schema)):
        _make_checker(schema)


def _copy_schema(schema: JsonSchema) -> JsonSchema:
    """Return a raw JSON Schema as it is sent. Raises `ConfigError` if it is no JSON object."""
    try:
        return msgspec.json.decode(msgspec.json.encode(schema), type=dict[str, Any])
    except Exception as error:
        message = f"a schema that is no JSON object cannot be sent to a model ({error}): {short_repr(schema)}"
        raise ConfigError(message) from error


def json_schema_for_type(type_: Any) -> JsonSchema:
    """Return the JSON Schema of a type, with the type itself at the root and the types it refers to under `$defs`."""
    schema: JsonSchema = msgspec.json.decode(msgspec.json.encode(_converter_for(type_).schema))
    return inline_root_reference(schema)


def convert_value(value: Any, type_: Any) -> Any:
    """Convert a JSON value to an instance of a type: strictly if possible, else leniently (`"5"` for 5).

    Raises `Invalid` with every problem.
    """
    return _converter_for(type_).read(value)


def check_value(value: Any, schema: JsonSchema) -> None:
    """Raise `Invalid`, with its problems, unless a JSON value conforms to a raw JSON Schema."""
    if problems := _make_checker(schema).find_problems(value):
        raise Invalid(problems)


def _make_checker(schema: JsonSchema, *, validate_formats: bool = False) -> "SchemaChecker":
    """Return the checker of a raw JSON Schema, compiled once for all schemas with the same text."""
    try:
        text = msgspec.json.encode(schema)
    except Exception as error:
        message = f"a JSON Schema that is no JSON object cannot be checked ({error}): {short_repr(schema)}"
        raise ConfigError(message) from error
    return _compile_checker(text, validate_formats=validate_formats)


@functools.lru_cache(maxsize=MAX_CACHED_CHECKERS)
def _compile_checker(text: bytes, *, validate_formats: bool) -> "SchemaChecker":
    from .checker import SchemaChecker  # at first use: for a quick start

    return SchemaChecker(msgspec.json.decode(text), validate_formats=validate_formats)


class _Field(msgspec.Struct, frozen=True):
    reader: "_TypeConverter"
    required: bool


class _FunctionParameters(Parameters):
    """Parameters read from the signature of a function."""

    __slots__ = ("_defaults", "_fields", "_hooked", "_is_prepared", "_size", "_struct")

    def __init__(self, signature: Signature) -> None:
        self._fields: dict[str, _Field] = {}
        self._defaults = {each.name: each.default for each in signature.parameters if each.default is not NO_DEFAULT}
        properties: JsonSchema = {}
        definitions: JsonSchema = {}
        for parameter in signature.parameters:
            where = f"parameter {parameter.name!r} of {signature.name}"
            annotation, text = split_description(parameter.annotation)
            if parameter.default is None and translate_for_msgspec(annotation) is not Any:
                annotation = Optional[annotation]  # noqa: UP045 - it is a value here
            reader = _make_converter(annotation, where)
            self._fields[parameter.name] = _Field(reader, parameter.default is NO_DEFAULT)
            properties[parameter.name] = _property_schema(
                parameter, text, hoist_definitions(reader.schema, definitions), where
            )
        self._size = len(self._fields)
        self._hooked = any(
            isinstance(field.reader, _MsgspecConverter) and field.reader.needs_hook for field in self._fields.values()
        )
        self._struct: type[msgspec.Struct] | None = None
        """The struct that converts all arguments at once; made for the first call, as most tools are never called."""
        self._is_prepared = False
        required = [name for name, field in self._fields.items() if field.required]
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        super().__init__(add_definitions(schema, definitions))

    def parse(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not self._is_prepared:
            self._prepare()
        if self._struct is None:
            return self._parse_each(arguments)
        try:
            # Without the hook where it is not needed: passing it takes longer than converting two arguments.
            if self._hooked:
                parsed = msgspec.convert(arguments, self._struct, dec_hook=_decode_path)
            else:
                parsed = msgspec.convert(arguments, self._struct)
        except Exception:  # noqa: BLE001 - the callers' classes run here too
            return self._parse_each(arguments)
        if len(arguments) == self._size:
            return asdict(parsed)
        return {name: getattr(parsed, name) for name in arguments}

    def _prepare(self) -> None:
        struct = _make_arguments_struct(self._fields)
        if struct is not None:
            prepare_type(struct)  # before others see it: a call on another thread may be the first one too
        self._struct = struct
        self._is_prepared = True

    def add_defaults(self, parsed: dict[str, Any]) -> dict[str, Any]:
        # Those that were written come first: people read them in this order.
        return parsed if len(parsed) == self._size else {**parsed, **self._defaults, **parsed}

    def _parse_each(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Validate each argument separately, so that every problem is found."""
        parsed: dict[str, Any] = {}
        problems = [
            missing_key_problem(name)
            for name, field in self._fields.items()
            if field.required and name not in arguments
        ]
        problems += unexpected_key_problems("", [name for name in arguments if name not in self._fields], self._fields)
        for name, field in self._fields.items():
            if name not in arguments:
                continue
            value = arguments[name]
            try:
                parsed[name] = field.reader.read(value)
            except Invalid as invalid:
                # Many models write null for an argument that is not given.
                if value is not None or field.required:
                    problems += prefix_problem_paths(name, invalid.problems)
        if problems:
            raise Invalid(problems)
        return parsed


class _SchemaParameters(Parameters):
    """Parameters described by a raw JSON Schema."""

    __slots__ = ("_checker", "_has_defaults")

    def __init__(self, json_schema: JsonSchema) -> None:
        _require_usable_schema(json_schema)
        super().__init__(json_schema)
        self._checker: SchemaChecker | None = None
        self._has_defaults = has_defaults(json_schema)

    def parse(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._checker is None:
            self._checker = _make_checker(self.json_schema)
        try:
            problems = self._checker.find_problems(arguments)
        except ValueError as error:  # a lone surrogate, or nested deeper than the validator accepts
            problems = [Problem("", f"cannot be checked: {error}")]
        if problems:
            raise Invalid(problems)
        return arguments

    def add_defaults(self, parsed: dict[str, Any]) -> dict[str, Any]:
        return add_schema_defaults(self.json_schema, parsed) if self._has_defaults else parsed


class _TypeConverter(Protocol):
    """Protocol of a converter for one type: its JSON Schema, and the conversion of JSON values to the type."""

    schema: JsonSchema

    def read(self, value: Any) -> Any:
        """Convert a JSON value to the type. Raises `Invalid`."""


class _MsgspecConverter:
    """Schema and converter of a type that msgspec can express."""

    __slots__ = ("_checker", "native", "needs_hook", "schema")

    def __init__(self, annotation: Any, survey: FieldClassFinder) -> None:
        self.needs_hook = False
        """True if msgspec needs our hook to convert some part of it."""
        self.native = translate_for_msgspec(annotation)
        self._checker: SchemaChecker | None = None
        types = [self.native, *(each.annotation for each in survey.class_descriptions)]
        schemas, definitions = msgspec.json.schema_components(types, schema_hook=self._custom_schema)
        for reference, described in zip(schemas[1:], survey.class_descriptions, strict=True):
            described.add_to_schema(definitions[reference["$ref"].removeprefix(REF)])
        self.schema = add_enum_types(add_definitions(schemas[0], definitions))
        prepare_type(self.native)

    def _custom_schema(self, kind: Any) -> JsonSchema:
        if not issubclass(kind, _PathLike) or inspect.isabstract(kind):
            message = f"{kind.__qualname__} is a custom class"
            raise TypeError(message)
        self.needs_hook = True
        return {"type": "string", "format": "path"}

    def read(self, value: Any) -> Any:
        try:
            return msgspec.convert(value, self.native, dec_hook=_decode_path, str_keys=True)
        except Exception:  # noqa: BLE001, S110 - the callers' classes run here too; it is tried again below
            pass
        try:
            found = msgspec.convert(value, self.native, strict=False, dec_hook=_decode_path, str_keys=True)
        except Exception as error:  # noqa: BLE001 - as above
            raise Invalid(self._problems(value, error)) from None
        if type(found) is float and not math.isfinite(found):
            raise Invalid([Problem("", f"expected a finite number, got {short_repr(value)}")])
        return found

    def _problems(self, value: Any, error: Exception) -> list[Problem]:
        try:
            if self._checker is None:
                self._checker = _make_checker(self.schema, validate_formats=True)
            return self._checker.find_problems(value) or [problem_from_msgspec_error(error)]
        except Exception:  # noqa: BLE001 - a value or a schema that jsonschema-rs does not take
            return [problem_from_msgspec_error(error)]


class _PydanticConverter:
    """Schema and converter of a type that needs pydantic, by pydantic's own rules."""

    __slots__ = ("_adapter", "schema")

    def __init__(self, annotation: Any) -> None:
        import pydantic

        self._adapter: Any = pydantic.TypeAdapter(annotation)
        self.schema: JsonSchema = self._adapter.json_schema()

    def read(self, value: Any) -> Any:
        import json

        try:
            # As JSON, where pydantic accepts text for a date even in a strict model.
            return self._adapter.validate_json(json.dumps(value))
        except Exception as error:  # noqa: BLE001 - the callers' validators run here
            raise Invalid(problems_from_pydantic_error(error)) from None


def _make_converter(annotation: Any, where: str) -> _TypeConverter:
    """Return the converter of a type. `where` is the parameter or output that errors name."""
    if type(annotation) is type and annotation in _SCALARS:
        return _scalar_converter(annotation)
    try:
        survey = FieldClassFinder(annotation)
        if not survey.needs_pydantic:
            return _MsgspecConverter(annotation, survey)
        reason = "it is made with pydantic"
    except Exception as error:  # noqa: BLE001 - a type may raise anything
        reason = str(error)
    problem = f"{where} has the type {annotation!r}, which msgspec cannot express ({reason})"
    advice = "use a msgspec.Struct, a dataclass or a TypedDict"
    try:
        return _PydanticConverter(annotation)
    except ImportError as error:
        message = f"{problem}: install pydantic, or {advice}"
        raise ConfigError(message) from error
    except Exception as error:
        its_reason = str(error).partition("\n")[0]
        message = f"{problem}, nor can pydantic ({its_reason}): {advice}"
        raise ConfigError(message) from error


_SCALARS = frozenset({bool, float, int, str})
"""The types of most parameters: all parameters of one of them share a converter, which nothing changes."""


@functools.cache
def _scalar_converter(kind: type) -> _TypeConverter:
    return _MsgspecConverter(kind, FieldClassFinder(kind))


@functools.lru_cache(maxsize=256, typed=True)
def _cached_converter(type_: Any) -> _TypeConverter:
    return _make_converter(type_, "the output")


def _converter_for(type_: Any) -> _TypeConverter:
    try:
        return _cached_converter(type_)
    except TypeError:  # an annotation may contain an unhashable value
        return _make_converter(type_, "the output")


def _decode_path(kind: type, value: Any) -> Any:
    if not isinstance(value, str):
        message = f"expected a path as a string, got {short_repr(value)}"
        raise TypeError(message)
    return kind(value)


def _make_arguments_struct(fields: dict[str, _Field]) -> type[msgspec.Struct] | None:
    """Return a msgspec struct that converts all fields in one fast call; `None` if msgspec cannot convert one."""
    members: list[Any] = []
    for name, field in fields.items():
        if not isinstance(field.reader, _MsgspecConverter):
            return None
        members.append((name, field.reader.native) if field.required else (name, field.reader.native, msgspec.UNSET))
    return msgspec.defstruct("Arguments", members, kw_only=True, forbid_unknown_fields=True)


def _property_schema(parameter: Parameter, text: str, schema: JsonSchema, where: str) -> JsonSchema:
    """Return the schema of one parameter, with its description and its default."""
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
        plain = msgspec.json.decode(msgspec.json.encode(default, enc_hook=_encode_default))
    except Exception:  # noqa: BLE001 - a default that JSON cannot express is left to Python
        return schema
    return {**schema, "default": plain}


def _encode_default(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return _fspath(value)
