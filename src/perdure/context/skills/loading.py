"""Load a skill from a directory with a `SKILL.md`.

Loading is lenient, by the rules of agentskills.io: what can be repaired is repaired, with a note in `Skill.problems`. A
`ConfigError` has the reason why a directory is not a skill: its description is missing, its front matter cannot be
parsed, or it is too large.
"""

# ruff: noqa: PTH118, PTH119 - pathlib would cost every start milliseconds
import os
from collections.abc import Mapping
from typing import Any, Final, cast

from perdure.context.front_matter import parse_front_matter
from perdure.context.text_file_reader import strip_invisible_characters
from perdure.core.error import ConfigError
from perdure.core.jsonable import short_repr
from perdure.files.sensitive_names import SENSITIVE_NAMES, find_blocking_pattern

from .skill import Resource, ResourceLoader, Skill, SkillSource, is_skill_name, make_skill_name
from .skill_files_and_hashes import (
    combine_hashes,
    hash_bytes,
    hash_files,
    is_inside_directory,
    iterate_files,
    read_file_inside,
)

SKILL_FILE: Final = "SKILL.md"
RESOURCE_FOLDERS: Final = ("scripts/", "references/", "assets/")
"""Folders with the resources of a skill."""
LONGEST_DESCRIPTION: Final = 1024
LONGEST_COMPATIBILITY: Final = 500
LONGEST_FIELD: Final = 4096
"""Maximum length of any other field."""


def read_skill(directory: str, source: SkillSource = "user", *, pinned: bool = False) -> Skill:
    """Load the skill in a directory from its `SKILL.md`. Mistakes that can be repaired are listed in its `problems`.

    Files of a project's skill, or with `pinned` of any, are no longer read once they change.
    """
    problems: list[str] = []
    data = read_file_inside(directory, SKILL_FILE)
    digests = _hash_directory(directory, data) if source == "project" or pinned else None
    front = parse_front_matter(_decode_text(data, problems))
    fields = front.fields
    if not front.lines:
        raise ConfigError("it has no front matter: begin it with '---', 'name: …', 'description: …' and '---'")
    metadata = _parse_metadata(fields.get("metadata", {}), problems)
    sections, resources = _find_texts(directory, digests, problems)
    body = strip_invisible_characters(front.body).strip()
    if not body:
        problems.append("it has no text below its front matter")
    return Skill(
        description=_parse_description(fields.get("description"), problems),
        name=_choose_name(fields.get("name"), directory, problems),
        body=body,
        sections=sections,
        resources=resources,
        priority=_parse_priority(fields.get("priority", metadata.get("priority", "0")), problems),
        hidden=_parse_hidden(fields.get("hidden", metadata.get("hidden", "false")), problems),
        license=_parse_text_field(fields, "license", LONGEST_FIELD, problems),
        compatibility=_parse_text_field(fields, "compatibility", LONGEST_COMPATIBILITY, problems),
        allowed_tools=_parse_text_field(fields, "allowed-tools", LONGEST_FIELD, problems),
        metadata=metadata,
        path=directory,
        source=source,
        content_hash=combine_hashes(digests) if digests is not None else "",
        problems=tuple(problems),
    )


def _hash_directory(directory: str, data: bytes) -> dict[str, str]:
    try:
        digests = hash_files(directory)
    except OSError as error:
        raise ConfigError(f"a file of it cannot be read ({error}): check its permissions") from error
    if digests.get(SKILL_FILE) != hash_bytes(data):
        raise ConfigError(f"{SKILL_FILE!r} is a link, or was changed while it was read: put the file itself there")
    return digests


def _decode_text(data: bytes, problems: list[str]) -> str:
    text = data.decode(errors="replace")
    if "\ufffd" in text and "\ufffd".encode() not in data:
        problems.append("it is not UTF-8 throughout: save it as UTF-8")
    shown = strip_invisible_characters(text.removeprefix("\ufeff"))
    if len(shown) < len(text.removeprefix("\ufeff").replace("\r", "")):
        problems.append("invisible characters were left out of it: remove them")
    return shown


# -- fields ------------------------------------------------------------------------------------------------------------


def _choose_name(given: Any, directory: str, problems: list[str]) -> str:
    """Return the name in the file, or a valid name made from it, or from the name of the directory."""
    folder = os.path.basename(os.path.realpath(directory))
    said = given if isinstance(given, str) else ""
    name = make_skill_name(said) or make_skill_name(folder)
    if not name:
        raise ConfigError(
            f"neither name {short_repr(given, 80)} nor directory {short_repr(folder, 80)} has a letter a-z"
        )
    if not said:
        problems.append(f"it has no name, and is called {name!r} like its directory: add 'name: {name}'")
    elif not is_skill_name(said):
        problems.append(f"its name {short_repr(said, 80)} is not made of a-z, 0-9 and hyphens: it is called {name!r}")
    elif said != folder:
        problems.append(f"its name is {name!r} and that of its directory {short_repr(folder, 80)}: make them the same")
    return name


def _parse_description(given: Any, problems: list[str]) -> str:
    line = to_one_line(given, LONGEST_DESCRIPTION + 1) if isinstance(given, str) else ""
    if not line:
        raise ConfigError("its description is missing: add 'description: ' and say what it does and when to use it")
    if len(line) > LONGEST_DESCRIPTION:
        problems.append(f"its description is cut after {LONGEST_DESCRIPTION} characters: make it shorter")
    return to_one_line(line, LONGEST_DESCRIPTION)


def _parse_text_field(fields: Mapping[str, Any], name: str, most: int, problems: list[str]) -> str:
    """Return a field that is one line, or a list of texts."""
    given: Any = fields.get(name, "")
    if isinstance(given, list):
        words: list[Any] = cast("Any", given)
        given = " ".join(words) if all(isinstance(each, str) for each in words) else None
    if not isinstance(given, str):
        problems.append(f"its field {name!r} is not text, and left out")
        return ""
    if len(given) > most:
        problems.append(f"its field {name!r} is cut after {most} characters: make it shorter")
    return to_one_line(given, most)


def _parse_metadata(given: Any, problems: list[str]) -> dict[str, str]:
    pairs: dict[str, Any] = cast("Any", given) if isinstance(given, dict) else {}
    texts = {
        to_one_line(key, 80): to_one_line(text, LONGEST_FIELD) for key, text in pairs.items() if isinstance(text, str)
    }
    if len(texts) < len(pairs) or (given and not pairs):
        problems.append("values in its metadata that are not text are left out")
    return texts


def _parse_priority(given: Any, problems: list[str]) -> int:
    try:
        return int(given)
    except (TypeError, ValueError):  # also for more digits than Python accepts
        problems.append(f"its priority {short_repr(given, 40)} is not a whole number, and taken for 0")
        return 0


def _parse_hidden(given: Any, problems: list[str]) -> bool:
    said = given.lower() if isinstance(given, str) else None
    if said not in {"true", "yes", "on", "false", "no", "off", ""}:
        problems.append(f"its field 'hidden' is {short_repr(given, 40)}, and taken for false: say true or false")
    return said in {"true", "yes", "on"}


def to_one_line(text: str, max_length: int) -> str:
    """Return the text as one line, cut to at most `max_length` characters."""
    line = " ".join(strip_invisible_characters(text).split())
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"


# -- files -------------------------------------------------------------------------------------------------------------


def _find_texts(
    directory: str, digests: Mapping[str, str] | None, problems: list[str]
) -> tuple[dict[str, Resource | str], dict[str, Resource | str]]:
    """Return the Markdown files beside `SKILL.md` by stem, and the files of the three folders by path."""
    sections: dict[str, Resource | str] = {}
    resources: dict[str, Resource | str] = {}
    try:
        for name in iterate_files(directory):
            if not name.isprintable() or not is_inside_directory(directory, os.path.join(directory, name)):
                continue
            if find_blocking_pattern(name.split("/"), SENSITIVE_NAMES) and not name.endswith(".md"):
                problems.append(f"{short_repr(name, 80)} is left out: files of such a name may contain secrets")
                continue
            resource = Resource(_build_loader(directory, name, digests))
            if name.startswith(RESOURCE_FOLDERS):
                resources[name] = resource
            elif name.endswith(".md") and "/" not in name and name not in {SKILL_FILE, ".md"}:
                sections[name.removesuffix(".md")] = resource
    except (OSError, ConfigError) as error:
        problems.append(f"not all of its files are known: {error}")
    return sections, resources


def _build_loader(directory: str, name: str, digests: Mapping[str, str] | None) -> ResourceLoader:
    """Return a function that reads one file on demand. A trusted file is read unchanged, or not at all."""

    def load() -> str:
        data = read_file_inside(directory, name)
        if digests is not None:
            real = os.path.relpath(os.path.realpath(os.path.join(directory, name)), os.path.realpath(directory))
            if digests.get(real.replace(os.sep, "/")) != hash_bytes(data):
                raise ConfigError(f"{name!r} has changed since its skill was loaded: load the skills again")
        try:
            return strip_invisible_characters(data.decode())
        except UnicodeDecodeError as error:
            raise ConfigError(f"{name!r} is not text: its path is {os.path.join(directory, name)!r}") from error

    return load
