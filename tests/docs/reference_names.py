"""The names that the reference documents of other systems document.

Four systems have a page in docs/coming-from that maps each of their names to one of ours. Which names those are is read
out of the systems' own reference documents, by a reader for each format (`names_of_glove.py` and its neighbours). The
documents are not ours to keep, so they lie outside of the repository: beside the checkout, or where `PERDURE_SEEDS`
says. What is kept here is the list of names that was read (`names/SYSTEM.txt`): written by

    python -m tests.docs.reference_names

A name is written `name`, `Owner.member`, or `Owner."literal"` for a string that the API takes or gives.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.docs import names_of_agentlib, names_of_glove, names_of_glue, names_of_open_agent_loops
from tests.docs.pages import ROOT

FOLDER = Path(os.environ.get("PERDURE_SEEDS") or ROOT.parent / "shared" / "spec" / "seeds")
"""Where the reference documents are, on machines that have them."""
LISTS = Path(__file__).parent / "names"

SYSTEMS = {
    "glove": (names_of_glove, ("000",)),
    "glue": (names_of_glue, ("001", "002")),
    "open-agent-loops": (names_of_open_agent_loops, ("003",)),
    "agentlib": (names_of_agentlib, ("004",)),
}
"""The reader of each system, and how the names of its documents begin."""

_IDENTIFIER = re.compile(
    r"""(?<![\w/.-])(
        [a-z][a-z0-9]*(?:[A-Z][a-z0-9]*)+     # camelCase
      | (?:[A-Z]+[a-z0-9]+){2,}[A-Z]*         # PascalCase
      | [A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+  # snake_case and SCREAMING_CASE
    )(?![\w-])""",
    re.VERBOSE,
)


def is_there() -> bool:
    """Whether the reference documents can be read on this machine."""
    return all(next(FOLDER.glob(f"{prefix}_*"), None) for _, prefixes in SYSTEMS.values() for prefix in prefixes)


def document(system: str) -> str:
    """The reference documents of a system, one after the other."""
    _, prefixes = SYSTEMS[system]
    return "\n".join(next(FOLDER.glob(f"{each}_*")).read_text(encoding="utf-8") for each in prefixes)


def extracted(system: str) -> list[str]:
    """The names that the documents of a system hold, in order of the alphabet.

    What the format's reader finds, and then every word that is written like an identifier and that it did not find:
    prose mentions names that no table has.
    """
    reader, _ = SYSTEMS[system]
    text = document(system)
    found = set(reader.names(text))
    found |= left_over(reader.prose(text), found)
    return sorted(found - set(reader.NO_NAMES), key=lambda name: (name.lower(), name))


def left_over(text: str, found: Iterable[str]) -> set[str]:
    """The words in `text` that look like names, and are no part of any name that was found."""
    known = {part for name in found for part in re.split(r'[."]', name)}
    return {word for word in _IDENTIFIER.findall(text) if word not in known}


def unknown_exclusions(system: str) -> list[str]:
    """Words that a reader leaves out and that its documents do not hold: they are excluded for nothing."""
    reader, _ = SYSTEMS[system]
    exclusions: Mapping[str, str] = reader.NO_NAMES
    text = document(system)
    found = set(reader.names(text))
    return sorted(set(exclusions) - found - left_over(reader.prose(text), found))


def kept(system: str) -> list[str]:
    """The names as they were last read."""
    return (LISTS / f"{system}.txt").read_text(encoding="utf-8").split("\n")[:-1]


def main() -> None:
    """Read the documents, and write the lists."""
    for system in SYSTEMS:
        names = extracted(system)
        (LISTS / f"{system}.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        sys.stdout.write(f"{system}: {len(names)} names\n")


if __name__ == "__main__":
    main()
