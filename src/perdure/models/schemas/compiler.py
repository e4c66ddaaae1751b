"""One schema, in the words of one provider. Above: the package. Below: `dialect.py` and the modules beside it.

Every value that fits the schema fits what is made of it, as far as the provider has words for it; what it has no words
for is said in the description. The way down is bounded: by how deep it goes, by how often a definition is unfolded
within itself, and by how many parts come out. Nothing of the input is changed.
"""

from typing import Any, TypeAlias

from perdure.core.definitions import is_array, is_object

from .alternative import anything, cut, either, or_null
from .dialect import Dialect
from .fold import folded
from .merge import merged
from .note import described, noted
from .part import Part, titled
from .reference import Document
from .repair import likely_types, repaired

MOST_PARTS = 4_000
"""How many schemas may come out of one."""

Inside: TypeAlias = tuple[str, ...]
"""The references that were followed on the way to a schema."""

_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "example", "$comment", "deprecated"})
_DEFINITIONS = ("$defs", "definitions")
_MAPS = ("properties", "patternProperties", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = (
    *("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties"),
)


class TooLargeSchema(Exception):
    """More parts come out than may; it never leaves the package."""


class Compiler:
    """One compilation. `inexact` collects what the provider cannot be held to at all."""

    __slots__ = ("_definitions", "_depth", "_left", "_pending", "_unfolded", "dialect", "document", "inexact")

    def __init__(self, document: Document, dialect: Dialect, depth: int, unfolded: int) -> None:
        self.document = document
        self.dialect = dialect
        self.inexact: list[str] = []
        self._depth = depth
        self._unfolded = unfolded
        self._left = MOST_PARTS
        self._definitions: dict[str, Any] = {}
        self._pending: list[str] = []

    def top(self) -> dict[str, Any]:
        """The whole schema: an object, with what it refers to."""
        found = self.node(self._top_object(), 0, ())
        if found.get("type") == "object":
            found = {"type": "object", "properties": dict[str, Any](), **found}
        elif "anyOf" not in found:  # alternatives of which none is an object
            found = {"type": "object", "properties": dict[str, Any](), **described(found, ())}
        while self._pending:
            reference = self._pending.pop()
            self._definitions[self.document.name(reference)] = self.node(self.document.target(reference), 1, ())
        if self._definitions:
            found["$defs"] = dict(sorted(self._definitions.items()))
        return found

    def _top_object(self) -> dict[str, Any]:
        """The root with its reference followed; if it must be one object, with its alternatives folded into one."""
        root, inside = self._followed(_without(self.document.root, *_DEFINITIONS), ())
        root, _ = self._flattened(root, inside)
        if self.dialect.top_union and ("anyOf" in root or "oneOf" in root):
            return root
        one = folded(root, lambda each: self._followed(each, ())[0])
        if one is not root:
            self.inexact.append("alternatives at the top")
        return {**one, "type": "object"}

    # -- one schema ----------------------------------------------------------------------------------------------------

    def node(self, schema: Any, depth: int, inside: Inside) -> dict[str, Any]:
        """One schema, and what is in it."""
        self._left -= 1
        if self._left < 0:
            raise TooLargeSchema
        if not is_object(schema):
            return self._anything({}, ["leave this out"] if schema is False else [])
        schema = repaired(schema)
        if self.dialect.keywords is not None:
            schema, inside = self._flattened(schema, inside)
        if "$ref" in schema:
            return self._reference(schema, depth, inside)
        if depth > self._depth:
            return self._cut(schema)
        if self.dialect.keywords is None:
            return self._kept(schema, depth, inside)
        return self._said(schema, depth, inside)

    def _said(self, schema: dict[str, Any], depth: int, inside: Inside) -> dict[str, Any]:
        """In the words that the provider knows."""
        notes: list[str] = []
        if "oneOf" in schema and "anyOf" in schema:
            notes.append(noted("oneOf", schema["oneOf"]))
        elif "oneOf" in schema:
            schema["anyOf"] = schema["oneOf"]
        if "const" in schema and "const" not in (self.dialect.keywords or ()):
            schema["enum"] = [schema.pop("const")]
        if "anyOf" in schema:
            return self._union(_without(schema, "oneOf"), notes, depth, inside)
        return self._typed(schema, notes, depth, inside)

    def _kept(self, schema: dict[str, Any], depth: int, inside: Inside) -> dict[str, Any]:
        """For those who know all words: the schema itself, and what is in it."""
        found = _without(schema, *_DEFINITIONS, "$schema", "$id")
        for key in _MAPS:
            if key in found:
                found[key] = {name: self.node(each, depth + 1, inside) for name, each in found[key].items()}
        for key in _LISTS:
            if is_array(found.get(key)):
                found[key] = [self.node(each, depth + 1, inside) for each in found[key]]
        for key in _SINGLES:
            if is_object(found.get(key)):
                found[key] = self.node(found[key], depth + 1, inside)
        return found

    def _anything(self, schema: dict[str, Any], notes: list[str]) -> dict[str, Any]:
        if self.dialect.closed:
            self.inexact.append("a value of any kind")
        return anything(schema, notes, self.dialect)

    def _cut(self, schema: dict[str, Any]) -> dict[str, Any]:
        if self.dialect.closed:
            self.inexact.append("what is nested too deep, or within itself")
        return cut(schema, self.dialect)

    # -- what is elsewhere ---------------------------------------------------------------------------------------------

    def _reference(self, schema: dict[str, Any], depth: int, inside: Inside) -> dict[str, Any]:
        reference: str = schema["$ref"]
        beside = _without(schema, "$ref", *_DEFINITIONS)
        unfolded = inside.count(reference) > self._unfolded or depth > self._depth
        if self.dialect.references and (unfolded or not beside or self.dialect.annotated_references):
            return {"$ref": self._defined(reference), **(beside if self.dialect.annotated_references else {})}
        followed, inside = self._followed(schema, inside)
        return self._cut(followed) if unfolded else self.node(followed, depth + 1, inside)

    def _defined(self, reference: str) -> str:
        """Where the target is going to be."""
        name = self.document.name(reference)
        if name not in self._definitions:
            self.document.target(reference)  # it must be there
            self._definitions[name] = {}
            self._pending.append(reference)
        return f"#/$defs/{name}"

    def _followed(self, schema: dict[str, Any], inside: Inside) -> tuple[dict[str, Any], Inside]:
        """A schema in place of a reference to it."""
        schema, seen = repaired(schema), set[str]()
        while "$ref" in schema:
            reference = schema.pop("$ref")
            target = self.document.target(reference)
            if reference not in seen and is_object(target):
                schema = merged(schema, _without(repaired(target), *_DEFINITIONS))
            seen.add(reference)
            inside = (*inside, reference)
        return schema, inside

    def _flattened(self, schema: dict[str, Any], inside: Inside) -> tuple[dict[str, Any], Inside]:
        """Without `allOf`, and without alternatives of which there is one."""
        while True:
            schema, inside = self._all_merged(schema, inside)
            for word in ("anyOf", "oneOf"):
                branches = schema.get(word)
                if is_array(branches) and len(branches) == 1 and is_object(branches[0]):
                    schema = merged(_without(schema, word), repaired(branches[0]))
                    break
            else:
                return schema, inside

    def _all_merged(self, schema: dict[str, Any], inside: Inside) -> tuple[dict[str, Any], Inside]:
        """With what is under `allOf` said at once."""
        while "allOf" in schema:
            parts, schema = schema["allOf"], _without(schema, "allOf")
            if len(parts) == 1 and is_object(parts[0]) and "$ref" not in schema and not schema.keys() - _ANNOTATIONS:
                schema = {**repaired(parts[0]), **schema}
                continue
            for part in parts:
                self._left -= 1
                if self._left < 0:
                    raise TooLargeSchema
                if is_object(part) and inside.count(part.get("$ref", "")) <= self._unfolded:
                    followed, inside = self._followed(part, inside)
                    schema = merged(schema, followed)
        return schema, inside

    # -- alternatives --------------------------------------------------------------------------------------------------

    def _union(self, schema: dict[str, Any], notes: list[str], depth: int, inside: Inside) -> dict[str, Any]:
        """What stands beside `anyOf` holds in every branch."""
        beside = {key: value for key, value in schema.items() if key != "anyOf" and key not in _ANNOTATIONS}
        compiled: list[dict[str, Any]] = []
        for branch in schema["anyOf"]:
            if beside and is_object(branch):
                followed, within = self._followed(branch, inside)
                compiled.append(self.node(merged(followed, beside), depth + 1, within))
            else:
                compiled.append(self.node(branch, depth + 1, inside))
        return either(compiled, schema, notes, self.dialect)

    def _typed(self, schema: dict[str, Any], notes: list[str], depth: int, inside: Inside) -> dict[str, Any]:
        types = likely_types({"enum": [schema["const"]], **schema} if "const" in schema else schema)
        kinds = [each for each in types if each != "null"]
        if not types:
            return self._anything(schema, notes)
        if not kinds:
            return {"type": "null", **titled(schema), **described(schema, notes)}
        if len(kinds) > 1 and (self.dialect.nulls != "type" or {"object", "array"} & {*kinds}):
            compiled = [self._part(schema, [each], notes, depth, inside) for each in kinds]
            nulls: list[dict[str, Any]] = [{"type": "null"}] if "null" in types else []
            return either([*compiled, *nulls], {}, (), self.dialect)
        found = self._part(schema, kinds, notes, depth, inside)
        return or_null(found, self.dialect) if "null" in types else found

    # -- what is in something ------------------------------------------------------------------------------------------

    def _part(
        self, schema: dict[str, Any], kinds: list[str], notes: list[str], depth: int, inside: Inside
    ) -> dict[str, Any]:
        part = Part(schema, kinds, notes, self.dialect)
        if kinds == ["object"]:
            self._object(part, depth, inside)
        if kinds == ["array"]:
            self._array(part, depth, inside)
        self.inexact += part.inexact
        return part.finished()

    def _object(self, part: Part, depth: int, inside: Inside) -> None:
        told: dict[str, Any] = part.schema.get("properties", {})
        required = [name for name in dict.fromkeys(part.schema.get("required", ())) if told.get(name) is not False]
        wanted = {name: each for name, each in told.items() if each is not False}
        wanted |= {name: True for name in required if name not in wanted}
        properties = {name: self.node(each, depth + 1, inside) for name, each in wanted.items()}
        if self.dialect.all_required:
            for name in [name for name in properties if name not in set(required)]:
                made = or_null(properties[name], self.dialect)
                if made != properties[name]:  # a model that is held to it would say null where null is not taken
                    part.inexact.append("what may be left out, and may not be null")
                properties[name] = made
            required = list(properties)
        if properties or self.dialect.empty_objects:
            part.found["properties"] = properties
        if required or self.dialect.all_required:
            part.found["required"] = required
        self._further(part, depth, inside)

    def _further(self, part: Part, depth: int, inside: Inside) -> None:
        """Properties that nobody has named."""
        further = part.schema.get("additionalProperties")
        if self.dialect.closed:
            part.found["additionalProperties"] = False
            if further is True or is_object(further) or (further is None and not part.found.get("properties")):
                part.inexact.append("properties of any name")
        elif not part.knows("additionalProperties"):
            part.notes.append(noted("additionalProperties", further))
        elif further is not None:
            is_schema = is_object(further)
            part.found["additionalProperties"] = self.node(further, depth + 1, inside) if is_schema else further

    def _array(self, part: Part, depth: int, inside: Inside) -> None:
        prefix, items = part.schema.get("prefixItems"), part.schema.get("items")
        if is_array(prefix) and part.knows("prefixItems"):
            part.found["prefixItems"] = [self.node(each, depth + 1, inside) for each in prefix]
            if items is False:
                part.found["items"] = False
        elif is_array(prefix) and prefix:
            part.notes.append(noted("prefixItems", prefix))
            if items is False and "maxItems" not in part.schema:
                part.bound("maxItems", len(prefix))
            items = {"anyOf": [*prefix, *([items] if is_object(items) else [])]} if items is not None else None
        if is_object(items):
            part.found["items"] = self.node(items, depth + 1, inside)
        elif "prefixItems" not in part.found and (self.dialect.needs_items or self.dialect.closed):
            part.found["items"] = self._anything({}, [])


def _without(schema: dict[str, Any], *words: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in words}
