"""Merge the findings of several reviewing models: find those that are the same, and count the models for each."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from .review import SEVERITIES, Finding, ReviewedFinding

NEAR_LINES: Final = 4
"""Findings of two models in the same file are the same if their lines are at most this far apart."""
SIMILAR_TITLES: Final = 0.4
"""Findings without lines are the same if this part of the words of their titles is shared."""
_WORD: Final = re.compile(r"\w{3,}")


def merge_findings(reviews: Mapping[str, Sequence[Finding]]) -> list[ReviewedFinding]:
    """Return each distinct finding once, with the models that report it. `reviews` has the findings by model.

    Of findings that are the same, the worst is kept.
    """
    groups: list[list[tuple[str, Finding]]] = []
    for model, findings in reviews.items():
        for finding in findings:
            group = _find_group(groups, model, finding)
            if group is None:
                groups.append([(model, finding)])
            else:
                group.append((model, finding))
    return [_join_group(group, len(reviews)) for group in groups]


def _find_group(
    groups: Sequence[list[tuple[str, Finding]]], model: str, finding: Finding
) -> list[tuple[str, Finding]] | None:
    """Return the group of findings of *other* models that are the same as this one, the nearest first."""
    near = [
        group
        for group in groups
        if all(of != model for of, _ in group) and any(is_same_finding(each, finding) for _, each in group)
    ]
    return min(near, key=lambda group: _distance(group[0][1], finding)) if near else None


def _distance(one: Finding, other: Finding) -> float:
    lines = abs((one.line or 0) - (other.line or 0))
    return lines - _share_words(one.title, other.title)  # between equally near ones, the title decides


def is_same_finding(one: Finding, other: Finding) -> bool:
    """Return True if two findings of different models are about the same problem."""
    if one.file != other.file:
        return False
    if one.line is not None and other.line is not None:
        return abs(one.line - other.line) <= NEAR_LINES
    return _share_words(one.title, other.title) >= SIMILAR_TITLES


def _share_words(one: str, other: str) -> float:
    words, others = set(_WORD.findall(one.lower())), set(_WORD.findall(other.lower()))
    return len(words & others) / len(words | others) if words | others else 0.0


def _join_group(group: Sequence[tuple[str, Finding]], total: int) -> ReviewedFinding:
    worst = min(group, key=lambda each: SEVERITIES.index(each[1].severity))[1]
    return ReviewedFinding(worst, tuple([model for model, _ in group]), round(len(group) / total, 2))
