"""The JSON Schema of `perdure.toml`, made from its tables. Above: `validation.py`. Below: `tables.py`.

It is made for editors as much as for us, so each key has the description that stands under its field in the source.
"""

import ast
import inspect
import itertools
import textwrap
from typing import Any, Final, cast

import msgspec

from perdure.core.model import Settings
from perdure.core.stop import Limits

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
    tables.ServerTable,
    Limits,
    Settings,
)


def config_schema() -> dict[str, Any]:
    """The JSON Schema of `perdure.toml`: for editors, and for whoever writes such files by program."""
    return {"$schema": SCHEMA, "title": "perdure.toml", **bare_schema(described=True)}


def bare_schema(*, described: bool = False) -> dict[str, Any]:
    """The schema that files are held against; with descriptions it is the same."""
    schema = msgspec.json.schema(tables.ConfigFile)
    for table in _TABLES:
        definition = schema["$defs"][table.__name__]
        definition["additionalProperties"] = False
        definition.pop("title")
        texts = field_descriptions(table) if described else {}
        for name, field in definition["properties"].items():
            _without_null(field)
            if name in texts:
                field["description"] = texts[name]
    return schema


def _without_null(field: dict[str, Any]) -> None:
    """TOML cannot say null: what is not there is left out."""
    if field.get("default", ...) is None or isinstance(field.get("default"), dict):
        del field["default"]
    if "anyOf" in field:
        left = [each for each in field["anyOf"] if each != {"type": "null"}]
        field.pop("anyOf")
        field.update(left[0] if len(left) == 1 else {"anyOf": left})


def field_descriptions(table: type) -> dict[str, str]:
    """The texts that stand under the fields of a class; none where there is no source to read."""
    try:
        source = textwrap.dedent(inspect.getsource(table))
    except (OSError, TypeError):
        return {}
    body = cast("ast.ClassDef", ast.parse(source).body[0]).body
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
