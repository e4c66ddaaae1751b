"""A directory with a `SKILL.md` becomes a skill. Above: `discovery.py`. Below: `files.py`, front matter.

Leniently, by the rules of agentskills.io: what can be mended is mended, with a word about it in `Skill.problems`. A
`ConfigError` says why a directory is no skill at all: its description is missing, its front matter cannot be read, or
it is larger than a skill may be.
"""

# ruff: noqa: PTH118, PTH119 - pathlib would cost every start milliseconds
import os
from collections.abc import Mapping
from typing import Any, Final, cast

from perdure.context.front_matter import read_front_matter
from perdure.context.text_file import seen
from perdure.core.error import ConfigError
from perdure.core.plain import excerpt

from .files import digest_of, digests_of, files_below, hash_of, is_inside, read_inside
from .skill import Load, Resource, Skill, Source
from .wording import is_name, name_from, one_line

FILE: Final = "SKILL.md"
FOLDERS: Final = ("scripts/", "references/", "assets/")
"""Where the resources of a skill are."""
LONGEST_DESCRIPTION: Final = 1024
LONGEST_COMPATIBILITY: Final = 500
LONGEST_FIELD: Final = 4096
"""Characters of any other field."""


def read_skill(directory: str, source: Source = "user") -> Skill:
    """The skill of a directory, whoever vouches for it. What is wrong but can be mended is told in its `problems`."""
    problems: list[str] = []
    data = read_inside(directory, FILE)
    digests = _digests(directory, data) if source == "project" else None
    front = read_front_matter(_decoded(data, problems))
    fields = front.fields
    if not front.lines:
        raise ConfigError("it has no front matter: begin it with '---', 'name: …', 'description: …' and '---'")
    metadata = _metadata(fields.get("metadata", {}), problems)
    sections, resources = _texts(directory, digests, problems)
    body = seen(front.body).strip()
    if not body:
        problems.append("it says nothing below its front matter")
    return Skill(
        description=_description(fields.get("description"), problems),
        name=_name(fields.get("name"), directory, problems),
        body=body,
        sections=sections,
        resources=resources,
        priority=_priority(fields.get("priority", metadata.get("priority", "0")), problems),
        hidden=_hidden(fields.get("hidden", metadata.get("hidden", "false")), problems),
        license=_text(fields, "license", LONGEST_FIELD, problems),
        compatibility=_text(fields, "compatibility", LONGEST_COMPATIBILITY, problems),
        allowed_tools=_text(fields, "allowed-tools", LONGEST_FIELD, problems),
        metadata=metadata,
        path=directory,
        source=source,
        content_hash=hash_of(digests) if digests is not None else "",
        problems=tuple(problems),
    )


def _digests(directory: str, data: bytes) -> dict[str, str]:
    try:
        digests = digests_of(directory)
    except OSError as error:
        raise ConfigError(f"a file of it cannot be read ({error}): check its permissions") from error
    if digests.get(FILE) != digest_of(data):
        raise ConfigError(f"{FILE!r} is a link, or was changed while it was read: put the file itself there")
    return digests


def _decoded(data: bytes, problems: list[str]) -> str:
    text = data.decode(errors="replace")
    if "\ufffd" in text and "\ufffd".encode() not in data:
        problems.append("it is not UTF-8 throughout: save it as UTF-8")
    shown = seen(text.removeprefix("\ufeff"))
    if len(shown) < len(text.removeprefix("\ufeff").replace("\r", "")):
        problems.append("characters that nobody sees were left out of it: remove them")
    return shown


# -- fields ------------------------------------------------------------------------------------------------------------


def _name(given: Any, directory: str, problems: list[str]) -> str:
    """What it is called: what its file says, or what can be made of that, or of the name of its directory."""
    folder = os.path.basename(os.path.realpath(directory))
    said = given if isinstance(given, str) else ""
    name = name_from(said) or name_from(folder)
    if not name:
        raise ConfigError(f"neither name {excerpt(given, 80)} nor directory {excerpt(folder, 80)} has a letter a-z")
    if not said:
        problems.append(f"it has no name, and is called {name!r} like its directory: add 'name: {name}'")
    elif not is_name(said):
        problems.append(f"its name {excerpt(said, 80)} is not made of a-z, 0-9 and hyphens: it is called {name!r}")
    elif said != folder:
        problems.append(f"its name is {name!r} and that of its directory {excerpt(folder, 80)}: make them the same")
    return name


def _description(given: Any, problems: list[str]) -> str:
    line = one_line(given, LONGEST_DESCRIPTION + 1) if isinstance(given, str) else ""
    if not line:
        raise ConfigError("its description is missing: add 'description: ' and say what it does and when to use it")
    if len(line) > LONGEST_DESCRIPTION:
        problems.append(f"its description is cut after {LONGEST_DESCRIPTION} characters: make it shorter")
    return one_line(line, LONGEST_DESCRIPTION)


def _text(fields: Mapping[str, Any], name: str, most: int, problems: list[str]) -> str:
    """A field that is one line, or a list of words."""
    given: Any = fields.get(name, "")
    if isinstance(given, list):
        words: list[Any] = cast("Any", given)
        given = " ".join(words) if all(isinstance(each, str) for each in words) else None
    if not isinstance(given, str):
        problems.append(f"its field {name!r} is no text, and left out")
        return ""
    if len(given) > most:
        problems.append(f"its field {name!r} is cut after {most} characters: make it shorter")
    return one_line(given, most)


def _metadata(given: Any, problems: list[str]) -> dict[str, str]:
    pairs: dict[str, Any] = cast("Any", given) if isinstance(given, dict) else {}
    texts = {one_line(key, 80): one_line(text, LONGEST_FIELD) for key, text in pairs.items() if isinstance(text, str)}
    if len(texts) < len(pairs) or (given and not pairs):
        problems.append("what is no text in its metadata is left out")
    return texts


def _priority(given: Any, problems: list[str]) -> int:
    try:
        return int(given)
    except (TypeError, ValueError):  # and where it has more digits than Python agrees to read
        problems.append(f"its priority {excerpt(given, 40)} is no whole number, and taken for 0")
        return 0


def _hidden(given: Any, problems: list[str]) -> bool:
    said = given.lower() if isinstance(given, str) else None
    if said not in {"true", "yes", "on", "false", "no", "off", ""}:
        problems.append(f"its field 'hidden' is {excerpt(given, 40)}, and taken for false: say true or false")
    return said in {"true", "yes", "on"}


# -- files -------------------------------------------------------------------------------------------------------------


def _texts(
    directory: str, digests: Mapping[str, str] | None, problems: list[str]
) -> tuple[dict[str, Resource | str], dict[str, Resource | str]]:
    """The other Markdown files beside `SKILL.md` by their stems, and the files of the three folders by their paths."""
    sections: dict[str, Resource | str] = {}
    resources: dict[str, Resource | str] = {}
    try:
        for name in files_below(directory):
            if not name.isprintable() or not is_inside(directory, os.path.join(directory, name)):
                continue
            resource = Resource(_reader(directory, name, digests))
            if name.startswith(FOLDERS):
                resources[name] = resource
            elif name.endswith(".md") and "/" not in name and name not in {FILE, ".md"}:
                sections[name.removesuffix(".md")] = resource
    except (OSError, ConfigError) as error:
        problems.append(f"not all of its files are known: {error}")
    return sections, resources


def _reader(directory: str, name: str, digests: Mapping[str, str] | None) -> Load:
    """Reads one file when it is asked for. What was trusted is read as it was then, or not at all."""

    def load() -> str:
        data = read_inside(directory, name)
        if digests is not None:
            real = os.path.relpath(os.path.realpath(os.path.join(directory, name)), os.path.realpath(directory))
            if digests.get(real.replace(os.sep, "/")) != digest_of(data):
                raise ConfigError(f"{name!r} has changed since its skill was loaded: load the skills again")
        try:
            return seen(data.decode())
        except UnicodeDecodeError as error:
            raise ConfigError(f"{name!r} is not text: its path is {os.path.join(directory, name)!r}") from error

    return load
