"""Reads the names out of Glue's references: two pages of godoc, for the packages `glue` and `loop`."""

import re
from collections.abc import Iterator

NO_NAMES = {
    "OpenRouter": "a company",
    "updated_at": "how SessionState.UpdatedAt is stored",
    "maxTurns": "a parameter",
    "outPtr": "a parameter",
    "systemPrompt": "a parameter",
    "workDir": "a parameter",
    "promptConfig": "not exported",
    "sessionConfig": "not exported",
    "TextDelta": "ProviderEventTextDelta, cut short in prose",
}
"""Words that look like names, and why they are none."""

PROSE = {
    "ProjectContext": "AgentsMD Skills Roles",
    "RunResult": "Messages NewMessages",
    "Role": "Model name: description: model:",
    "Session": '"default"',
    "providers": "KeyAvailable",
}
"""Members that are only mentioned in sentences: godoc leaves out the fields of types that it shows on one line."""

_INDEX = re.compile(r"^- (?:type (\w+)|func (\w+)\(|func \(\w+ \*?(\w+)\) (\w+)\()", re.MULTILINE)
_HEADING = re.compile(r"^func (?:\(\*?(\w+)\) )?(\w+) ¶", re.MULTILINE)
_STRUCT = re.compile(r"^type (\w+) (struct|interface) \{\n(.*?)\n\}", re.MULTILINE | re.DOTALL)
_GROUP = re.compile(r"^const \( (.*) \)$", re.MULTILINE)
_TYPED = re.compile(r'(\w+) (\w+) = (?:"(\w+)"|iota)')
_SINGLE = re.compile(r"^(?:const|var) (\w+) = ", re.MULTILINE)
_FIELD = re.compile(r"^(\w+)(?: +[^(].*|\(.*)?$")
_MEMBER = re.compile(r"(?<![\w./])\[?([A-Z]\w+)\.([A-Z]\w+)\b")


def names(text: str) -> Iterator[str]:
    """The index, fields, methods, constants, variables, and the packages of the module."""
    for kind, function, owner, method in _INDEX.findall(text):
        yield kind or function or f"{owner}.{method}"
    for owner, function in _HEADING.findall(text):
        yield f"{owner}.{function}" if owner else function
    for owner, _, body in _STRUCT.findall(text):
        yield from (f"{owner}.{member}" for member in members(body))
    for group in _GROUP.findall(text):
        yield from constants(group)
    yield from _SINGLE.findall(text)
    types = {kind for kind, *_ in _INDEX.findall(text)}
    yield from (f"{owner}.{member}" for owner, member in _MEMBER.findall(text) if owner in types)
    for owner, mentioned in PROSE.items():
        yield from (f"{owner}.{member}" for member in mentioned.split())
    yield from packages(text)


def members(body: str) -> Iterator[str]:
    """The fields of a struct, or the methods of an interface."""
    for raw in body.splitlines():
        line = raw.strip()
        if not line.startswith("//") and (match := _FIELD.match(line)):
            yield match[1]


def constants(group: str) -> Iterator[str]:
    """The names of a group of constants, and the strings that they stand for, with the type of both."""
    plain = re.sub(r"// .*? (?=StopReasonMaxTurns StopReason)|= loop\.\w+", "", group)
    for name, kind, literal in _TYPED.findall(plain):
        yield name
        if literal:
            yield f'{kind}."{literal}"'
    yield from re.findall(r"[A-Z]\w+", _TYPED.sub("", plain))


def prose(text: str) -> str:
    """Where else names may stand: all of it, without what fields are called in JSON."""
    return re.sub(r'`json:"[^"]*"`', "", text)


def packages(text: str) -> Iterator[str]:
    """The folders of the module, as godoc lists them at the end of a page."""
    for listing in re.findall(r"^Directories\n(.*?)(?:^=|^Documentation$|\Z)", text, re.MULTILINE | re.DOTALL):
        inside = ""
        for line in listing.splitlines():
            if re.fullmatch(r"[a-z][\w/-]*", line) and line != "command":
                inside = f"{line}/" if line in {"agents", "cmd", "examples", "stores", "tools"} else inside
                yield "package " + (line if inside == f"{line}/" else inside + line)
            elif top := re.match(r"Package (cli|daemon|loop|prompts|providers) ", line):
                inside = "providers/" if top[1] == "providers" else ""
                yield f"package {top[1]}"
