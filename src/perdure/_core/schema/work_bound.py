"""Upper bound on the work of checking a value against a JSON Schema, so that costly schemas are rejected.

A short schema can take exponential work: each level of references that is applied ten times to one value multiplies the
checks by ten. The bound counts, for the values at each depth, how many parts of the schema are applied to one of
them at most. A schema that exceeds the limit for shallow values is refused; if it does so for deep values only, as some
recursive ones do, values nested as deep as that are refused. The estimate itself takes a bounded number of steps.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from perdure._core.values.error import ConfigError

from .definitions import JsonSchema, is_json_array, is_json_object

MAX_CHECKS_PER_VALUE = 10_000
"""The most checks of a single value that a schema may need; each is the application of one part of the schema."""
MAX_WEIGHT_PER_VALUE = 100_000
"""The same, where a match of a pattern that backtracks counts as many."""
MAX_CHECKS = 10_000_000
"""The most checks of all values in one call's arguments."""
MAX_SCHEMA_PARTS = 20_000
"""The most parts (schemas in the schema) that a schema may have."""
FEW_CHECKS = 500
"""A schema of no more parts, and without references, is never too costly."""
MAX_REFERENCE_CHAIN = 64
"""The most parts that may be applied to one value inside one another; the validator recurses for each."""
MIN_CHECKED_DEPTH = 4
"""A schema that cannot be checked to at least this depth of values within the limits is refused."""
MAX_VALUE_DEPTH = 100
"""The depth up to which the checks of values are counted: that of the deepest arguments."""
MAX_PATTERN_BYTES = 10 * 2**20
"""The memory that one compiled pattern may take."""
ALL_PATTERNS_BYTES = 64 * 2**20
"""The memory that all compiled patterns of one schema may take."""
MAX_ESTIMATE_STEPS = 300_000
"""The steps after which the estimate itself gives up."""

_COSTLY_PATTERN_WEIGHT = 2_000
"""Checks that one match of a pattern that backtracks counts as."""
_BACKTRACKS = re.compile(r"\\[1-9kgGK]|\(\?(?:[=!>(]|<[=!])|[*+?}]\+").search
_SATURATED = 10**9  # a larger count is cut to this; it is far beyond the limit

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else", "propertyNames")
_IN_PLACE_MAPS = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_METASCHEMAS = ("http://json-schema.org/", "https://json-schema.org/")
_UNIONS = frozenset({"anyOf", "oneOf"})


class ValidationWorkBound(Struct, frozen=True):
    """Upper bound on the work of checking one value against a schema, for values up to `max_depth`."""

    checks_per_value: int
    """The most parts of the schema that are applied to one value, weighted with the cost of patterns."""
    errors_per_value: int
    """The most parts that are applied to one value, unweighted: the most errors that it can have."""
    max_depth: int
    """Values nested deeper than this are not to be checked."""
    has_unions: bool
    """True if an error can contain the errors of several forms."""
    pattern_bytes: int
    """The most memory that one compiled pattern may take."""
    unresolved: tuple[str, ...] = ()
    """References whose target is not in the schema."""


def estimate_validation_cost(schema: JsonSchema) -> ValidationWorkBound:
    """Return an upper bound on the work of checking a value against a schema. Raises `ConfigError` if too much."""
    graph = _SchemaGraph(schema)
    checks = sum([part.weight for part in graph.parts])
    errors, depth = len(graph.parts), MAX_VALUE_DEPTH
    # Without references each part is applied to a value at most once, and few parts need no closer look.
    if graph.has_references or checks > FEW_CHECKS:
        checks, errors, depth = _bound_by_depth(graph)
    pattern_bytes = min(MAX_PATTERN_BYTES, ALL_PATTERNS_BYTES // max(len(graph.patterns), 1))
    return ValidationWorkBound(checks, errors, depth, graph.has_unions, pattern_bytes, tuple(graph.unresolved))


def count_values(value: Any, limit: int) -> int:
    """Count a JSON value and all values nested in it; stop once the count exceeds `limit`."""
    count = 1
    pending: list[Any] = [value]
    while pending and count <= limit:
        each = pending.pop()
        inner = each.values() if is_json_object(each) else each if is_json_array(each) else ()
        count += len(inner)
        pending += inner
    return count


def is_nested_deeper(value: Any, depth: int) -> bool:
    """Return True if a JSON value has values nested deeper than `depth`; the value itself is at depth 0."""
    level: list[Any] = [value]
    for _ in range(depth + 1):
        below: list[Any] = []
        for each in level:
            if is_json_object(each):
                below += each.values()
            elif is_json_array(each):
                below += each
        if not below:
            return False
        level = below
    return True


class _Children:
    """The subschemas that apply to the values in an object, or in an array."""

    __slots__ = ("every", "named", "rest")

    def __init__(self) -> None:
        self.named: dict[str | int, _Part] = {}
        """By property name, or by place in the array."""
        self.rest: list[_Part] = []
        """Applied to the values that are not named."""
        self.every: list[_Part] = []
        """Applied to each value."""

    def all_parts(self) -> Iterator["_Part"]:
        """Yield each subschema that applies to one of the values."""
        return itertools.chain(self.named.values(), self.rest, self.every)


class _Part:
    """A subschema: the subschemas that apply to the same value, and those that apply to the values in it."""

    __slots__ = ("here", "items", "node", "properties", "weight")

    def __init__(self, node: Any) -> None:
        self.node = node
        self.weight = 1
        self.here: list[_Part] = []
        self.properties = _Children()
        self.items = _Children()


class _SchemaGraph:
    """The subschemas of a schema that can apply to a value, with references resolved."""

    def __init__(self, root: JsonSchema) -> None:
        self._root = root
        self._by_id: dict[int, _Part] = {}
        self._resources: list[Any] = [root]
        self._anchors: dict[str, list[Any]] = {}
        self.parts: list[_Part] = []
        self.patterns: set[str] = set()
        self.unresolved: list[str] = []
        self.has_references = False
        self.has_unions = False
        self._find_anchors()
        self.root = self._part(root)
        for part in self.parts:  # grows meanwhile
            if is_json_object(part.node):
                self._connect(part, part.node)

    def _find_anchors(self) -> None:
        pending: list[Any] = [self._root]
        while pending:
            node = pending.pop()
            if is_json_object(node):
                for word in ("$anchor", "$dynamicAnchor"):
                    if isinstance(name := node.get(word), str):
                        self._anchors.setdefault(name, []).append(node)
                if node is not self._root and isinstance(node.get("$id", node.get("id")), str):
                    self._resources.append(node)
                pending += node.values()
            elif is_json_array(node):
                pending += node

    def _part(self, node: Any) -> _Part:
        known = self._by_id.get(id(node)) if is_json_object(node) else None
        if known is not None:
            return known
        if len(self.parts) >= MAX_SCHEMA_PARTS:
            raise _make_refusal(f"it has more than {MAX_SCHEMA_PARTS} parts")
        part = _Part(node)
        self.parts.append(part)
        if is_json_object(node):
            self._by_id[id(node)] = part
        return part

    def _connect(self, part: _Part, node: JsonSchema) -> None:
        part.here = [self._part(each) for each in self._in_place(node)]
        part.weight = _own_weight(node)
        self._connect_properties(part.properties, node)
        self._connect_items(part.items, node)
        if isinstance(pattern := node.get("pattern"), str):
            self.patterns.add(pattern)
        self.has_unions = self.has_unions or not _UNIONS.isdisjoint(node)

    def _connect_properties(self, children: _Children, node: JsonSchema) -> None:
        properties, patterns = node.get("properties"), node.get("patternProperties")
        if is_json_object(properties):
            children.named = {name: self._part(each) for name, each in properties.items()}
        children.rest = self._parts_at(node, "additionalProperties")
        children.every = self._parts_at(node, "unevaluatedProperties")
        if is_json_object(patterns):
            children.every += [self._part(each) for each in patterns.values()]
            self.patterns |= patterns.keys()

    def _connect_items(self, children: _Children, node: JsonSchema) -> None:
        items = node.get("items")
        first = node.get("prefixItems", items if is_json_array(items) else None)
        if is_json_array(first):
            children.named = {place: self._part(each) for place, each in enumerate(first)}
        children.rest = self._parts_at(node, "additionalItems" if is_json_array(items) else "items")
        children.every = self._parts_at(node, "unevaluatedItems", "contains")

    def _parts_at(self, node: JsonSchema, *words: str) -> list[_Part]:
        return [self._part(node[word]) for word in words if word in node]

    def _in_place(self, node: JsonSchema) -> Iterator[Any]:
        """Yield the subschemas that apply to the same value."""
        for word in _IN_PLACE_LISTS:
            if is_json_array(each := node.get(word)):
                yield from each
        for word in _IN_PLACE:
            if word in node:
                yield node[word]
        for word in _IN_PLACE_MAPS:
            if is_json_object(each := node.get(word)):
                yield from [inner for inner in each.values() if not is_json_array(inner)]
        for word in _REFERENCES:
            if isinstance(reference := node.get(word), str):
                self.has_references = True
                yield from self._resolve(reference)

    def _resolve(self, reference: str) -> list[Any]:
        """Return the schemas that a reference may mean; several if the schema contains embedded resources."""
        address, _, fragment = reference.partition("#")
        if address.startswith(_METASCHEMAS):
            return []
        documents = self._resources
        if address:
            name = address.rpartition("/")[2]
            documents = [each for each in documents if _resource_id(each).rstrip("#").rpartition("/")[2] == name]
        if not fragment:
            targets = documents
        elif fragment.startswith("/"):
            targets = [found for each in documents if (found := _follow_pointer(each, fragment)) is not None]
        else:
            targets = self._anchors.get(fragment, [])
        if not targets:
            self.unresolved.append(reference)
        return targets


def _resource_id(node: JsonSchema) -> str:
    named = node.get("$id", node.get("id"))
    return named if isinstance(named, str) else ""


def _follow_pointer(node: Any, pointer: str) -> Any:
    from urllib.parse import unquote

    for step in unquote(pointer).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if is_json_object(node) and key in node:
            node = node[key]
        elif is_json_array(node) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node


def _own_weight(node: JsonSchema) -> int:
    weight = 1
    options = node.get("enum")
    if is_json_array(options):
        weight += len(options) // 64
    patterns = [
        node.get("pattern"),
        *(node["patternProperties"] if is_json_object(node.get("patternProperties")) else ()),
    ]
    return weight + sum(
        _COSTLY_PATTERN_WEIGHT for each in patterns if isinstance(each, str) and _BACKTRACKS(each) is not None
    )


class _Closure(Struct):
    """All subschemas that apply to a value once one does, with how often each applies."""

    counts: Counter[_Part]
    chain: int
    """The most parts that are applied inside one another."""


class _Inside(Struct):
    """The subschemas that apply to the values in an object or array, with how often: to each value, and to named
    ones.
    """

    base: Counter[_Part]
    named: list[Counter[_Part]]


class _Estimate:
    """An estimate of the work of checking, with the number of steps that it may still take itself."""

    def __init__(self, graph: _SchemaGraph) -> None:
        self._graph = graph
        self._steps_left = MAX_ESTIMATE_STEPS
        self.closures: dict[_Part, _Closure] = {}
        self._close_all()
        self.insides: dict[_Part, tuple[_Inside, _Inside]] = {}
        for part in {graph.root: None, **{child: None for each in graph.parts for child in _list_children(each)}}:
            counts = self.closures[part].counts
            self.insides[part] = (
                self._list_inside([(each.properties, count) for each, count in counts.items()]),
                self._list_inside([(each.items, count) for each, count in counts.items()]),
            )

    def _spend(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise _make_refusal("it has too many parts or references to tell")

    def _close_all(self) -> None:
        """Compute the closure of each subschema, inner ones first, without recursion."""
        for start in self._graph.parts:
            opened: dict[_Part, Iterator[_Part]] = {} if start in self.closures else {start: iter(start.here)}
            while opened:
                part, pending = next(reversed(opened.items()))
                for inner in pending:
                    if inner in opened:
                        chain = list(opened)
                        self._close_cycle(chain[chain.index(inner) :])
                    elif inner not in self.closures:
                        opened[inner] = iter(inner.here)
                        break
                else:
                    del opened[part]
                    if part not in self.closures:  # a cycle is closed as a whole
                        self.closures[part] = self._merge(part)

    def _close_cycle(self, cycle: Sequence[_Part]) -> None:
        """Set the closure of subschemas that refer to one another in a ring: whichever is first, each applies once."""
        if any(len(each.here) > 1 for each in cycle):
            raise _make_refusal("a part of it refers back to itself for the same value")
        self._spend(len(cycle))
        whole = _make_closure(Counter(cycle), len(cycle))
        self.closures.update(dict.fromkeys(cycle, whole))

    def _merge(self, part: _Part) -> _Closure:
        counts: Counter[_Part] = Counter({part: 1})
        chain = 0
        for closure in [self.closures[inner] for inner in part.here]:
            self._spend(len(closure.counts))
            chain = max(chain, closure.chain)
            for each, count in closure.counts.items():
                counts[each] = min(counts[each] + count, _SATURATED)
        return _make_closure(counts, chain + 1)

    def _list_inside(self, applied: Sequence[tuple[_Children, int]]) -> _Inside:
        base: Counter[_Part] = Counter()
        named: dict[str | int, Counter[_Part]] = {}
        for children, count in applied:
            self._spend(1 + len(children.named) + len(children.every))
            for each in (*children.every, *children.rest):
                base[each] += count
            for key, child in children.named.items():
                own = named.setdefault(key, Counter())
                own[child] += count
                for each in children.rest:  # not applied to what is named
                    own[each] -= count
        return _Inside(base, list(named.values()))

    def count_levels(self, weights: Mapping[_Part, int], limit: int) -> list[int]:
        """Return the most checks of one value at each depth, as long as they stay within the limit."""
        root = self._graph.root
        checks = {
            part: sum([count * weights[each] for each, count in self.closures[part].counts.items()])
            for part in self.insides
        }
        levels: list[int] = []
        while len(levels) <= MAX_VALUE_DEPTH and checks[root] <= limit:
            levels.append(checks[root])
            below = {
                part: max(self._count_inside(properties, checks), self._count_inside(items, checks))
                for part, (properties, items) in self.insides.items()
            }
            if below == checks:  # from here on all levels are the same
                return levels + levels[-1:] * (MAX_VALUE_DEPTH + 1 - len(levels))
            checks = below
        return levels

    def _count_inside(self, inside: _Inside, checks: Mapping[_Part, int]) -> int:
        self._spend(1 + len(inside.base) + sum(map(len, inside.named)))
        named = [sum([count * checks[part] for part, count in each.items()]) for each in inside.named]
        return sum([count * checks[part] for part, count in inside.base.items()]) + max([0, *named])


def _list_children(part: _Part) -> Iterator[_Part]:
    return itertools.chain(part.properties.all_parts(), part.items.all_parts())


def _make_closure(counts: Counter[_Part], chain: int) -> _Closure:
    """Return a closure; raise `ConfigError` if the validator would recurse too deep for it."""
    if chain > MAX_REFERENCE_CHAIN:
        raise _make_refusal(f"more than {MAX_REFERENCE_CHAIN} parts are applied to one value inside one another")
    return _Closure(counts, chain)


def _bound_by_depth(graph: _SchemaGraph) -> tuple[int, int, int]:
    """Return the most weighted and unweighted checks of one value, and the depth up to which they are bounded."""
    estimate = _Estimate(graph)
    errors = estimate.count_levels(dict.fromkeys(graph.parts, 1), MAX_CHECKS_PER_VALUE)
    checks = estimate.count_levels({part: part.weight for part in graph.parts}, MAX_WEIGHT_PER_VALUE)
    levels = min(len(errors), len(checks))
    if levels <= MIN_CHECKED_DEPTH:
        place = "the value" if not levels else f"each value nested {levels} deep"
        raise _make_refusal(f"{place} would take more than {MAX_CHECKS_PER_VALUE} checks")
    return max(checks[:levels]), max(errors[:levels]), levels - 1


def _make_refusal(reason: str) -> ConfigError:
    advice = "write it with fewer parts or references"
    return ConfigError(f"this JSON Schema could take too long to check: {reason}; {advice}")
