"""Build the JSON Schema of `perdure.toml` from the classes in `tables.py`.

Editors use it as well as validation, so each key has the description found under its field in the source.
"""

import ast
import contextlib
import inspect
import itertools
import textwrap
from typing import Any, Final, cast

import msgspec

from perdure._core.model.protocol import Settings
from perdure._core.run.stop import Limits

from . import tables

SCHEMA: Final = "https://json-schema.org/draft/2020-12/schema"

_TABLES: Final = (
    tables.ConfigFile,
    tables.PermissionsTable,
    tables.RuleTable,
    tables.PromptsTable,
    tables.CompactionTable,
    tables.ExtensionsTable,
    tables.VaultTable,
    tables.McpTable,
    tables.McpServerTable,
    tables.MemoryTable,
    tables.ScheduleTable,
    Limits,
    Settings,
)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of `perdure.toml` with a description of each key, for editors and programs."""
    return {"$schema": SCHEMA, "title": "perdure.toml", **build_schema(described=True)}


def build_schema(*, described: bool = False) -> dict[str, Any]:
    """Return the JSON Schema that `perdure.toml` is validated against; with `described`, each key has a description."""
    schema = msgspec.json.schema(tables.ConfigFile)
    for table in _TABLES:
        definition = schema["$defs"][table.__name__]
        definition["additionalProperties"] = False
        definition.pop("title")
        texts = read_field_descriptions(table) if described else {}
        for name, field in definition["properties"].items():
            _remove_null(field)
            if name in texts:
                field["description"] = texts[name]
    return schema


def _remove_null(field: dict[str, Any]) -> None:
    """Remove null from a field's schema: TOML has no null, a missing key is left out."""
    if field.get("default", ...) is None or isinstance(field.get("default"), dict):
        del field["default"]
    if "anyOf" in field:
        left = [each for each in field["anyOf"] if each != {"type": "null"}]
        field.pop("anyOf")
        field.update(left[0] if len(left) == 1 else {"anyOf": left})


def read_field_descriptions(table: type) -> dict[str, str]:
    """Return the docstring under each field of a class and of its bases, by field name, if their source is there."""
    texts: dict[str, str] = {}
    for part in reversed(table.__mro__):
        with contextlib.suppress(OSError, TypeError):  # without source code
            texts.update(_read_own_descriptions(inspect.getsource(part)))
    return texts


def _read_own_descriptions(source: str) -> dict[str, str]:
    body = cast("ast.ClassDef", ast.parse(textwrap.dedent(source)).body[0]).body
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
