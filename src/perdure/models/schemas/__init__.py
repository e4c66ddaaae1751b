"""The JSON Schemas of tools and outputs, in the words of each provider. Pure, and cheap when asked again.

Above: the wires. Below: `core`.

    dialect.py       which words each provider knows: the table
    compiler.py      one schema, in the words of one provider
    part.py          … of one kind of value
    alternative.py   … of several
    fold.py          alternatives at the top
    repair.py        older drafts, and OpenAPI
    reference.py     `$ref`
    merge.py         `allOf`
    note.py          what there are no words for, said in a description
    size.py          how large a schema is
    violation.py     which rules of a provider a schema breaks
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.definitions import is_object
from perdure.core.error import ConfigError
from perdure.core.plain import to_jsonable

from .alternative import cut
from .compiler import Compiler, TooLargeSchema
from .dialect import DIALECTS
from .reference import Document
from .size import oversizes
from .violation import violations

__all__ = ["can_be_strict", "compiled", "lenient", "rules", "violations"]

MOST_KEPT = 2_048
"""How many compiled schemas are remembered."""

_ATTEMPTS = ((32, 1), (32, 0), (10, 0), (5, 0), (3, 0), (1, 0))
"""How deep to go, and how often a definition is unfolded within itself: less and less, until it is small enough."""


class _Result(Struct, frozen=True):
    schema: Mapping[str, Any]
    inexact: tuple[str, ...]


def compiled(schema: Mapping[str, Any], rules: str) -> Mapping[str, Any]:
    """The schema in the words of a provider: `rules` is one of `rules()`. Do not change what you get.

    Raises `ConfigError` for rules that there are not, and for a reference to another document, or to nothing.
    """
    return _result(schema, rules).schema


def can_be_strict(schema: Mapping[str, Any], rules: str = "openai_strict") -> bool:
    """Whether a model that is held to the compiled schema can say all that the schema itself allows."""
    return not _result(schema, rules).inexact


def lenient(rules: str) -> str:
    """The rules of the same provider for a schema that the model is not held to."""
    return "openai" if rules == "openai_strict" else rules


def rules() -> list[str]:
    """The names of all rules."""
    return sorted(DIALECTS)


def _result(schema: Mapping[str, Any], rules: str) -> _Result:
    known = _by_identity.get((id(schema), rules))
    if known is not None and known[0] is schema:
        return known[1]
    if rules not in DIALECTS:
        message = f"there are no rules {rules!r} for schemas; there are {', '.join(DIALECTS)}"
        raise ConfigError(message)
    own: Any = to_jsonable(schema)
    text = msgspec.json.encode(own)
    result = _by_text.get((text, rules)) or _made(own, rules)
    _remember(_by_text, (text, rules), result)
    _remember(_by_identity, (id(schema), rules), (schema, result))
    return result


_by_identity: OrderedDict[tuple[int, str], tuple[Mapping[str, Any], _Result]] = OrderedDict()
"""With the schema itself, so that nothing else can have its identity."""
_by_text: OrderedDict[tuple[bytes, str], _Result] = OrderedDict()


def _remember(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    kept[key] = value
    if len(kept) > MOST_KEPT:
        kept.popitem(last=False)


def _made(schema: Any, rules: str) -> _Result:
    dialect = DIALECTS[rules]
    root: dict[str, Any] = schema if is_object(schema) else {}
    if rules == "plain":
        return _Result(_with_top(root), ())
    reasons: list[str] = []
    for depth, unfolded in _ATTEMPTS:
        compiler = Compiler(Document(root), dialect, depth, unfolded)
        compiler.inexact += reasons
        try:
            found = compiler.top()
        except TooLargeSchema:
            reasons = ["it is too large"]
        else:
            return _Result(found, tuple(dict.fromkeys([*compiler.inexact, *oversizes(found, dialect)])))
    return _Result(_with_top(cut({}, dialect)), tuple(reasons))


def _with_top(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as it is, if it says what is at its top; else an object."""
    if any(word in schema for word in ("$ref", "anyOf", "oneOf", "allOf")):
        return schema
    return {**schema, "type": "object", "properties": schema.get("properties", {})}
