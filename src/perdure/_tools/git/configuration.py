"""Read git configuration without git, and keep of it what cannot name a program.

A configuration can name programs in dozens of keys, and every version of git adds some. So nothing is switched off:
what is known to be plain is carried over into a configuration of our own, and all else does not exist for the git that
is run.
"""

# ruff: noqa: PTH111, PTH118, PTH120 - a Path would cost every start milliseconds
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from perdure._io.files.head import UnreadableFile, read_file_head
from perdure._io.home.paths import get_user_folder, get_user_home
from perdure._tools.search.patterns import compile_glob

MOST_CONFIGURATION_BYTES: Final = 1024 * 1024
_MOST_INCLUDES: Final = 5
"""How deep configuration files of the user include one another."""
_FLAG: Final = re.compile(r"true|false|yes|no|on|off|0|1|", re.IGNORECASE)
_TEXT: Final = re.compile(r"[^\x00-\x1f\x7f]{0,500}")
_PLAIN_KEYS: Final[Mapping[str, "re.Pattern[str]"]] = {
    "core.repositoryformatversion": re.compile("[01]"),
    "core.filemode": _FLAG,
    "core.ignorecase": _FLAG,
    "core.symlinks": _FLAG,
    "core.precomposeunicode": _FLAG,
    "core.autocrlf": re.compile(f"(?:{_FLAG.pattern}|input)", re.IGNORECASE),
    "core.eol": re.compile("lf|crlf|native"),
    "core.sparsecheckout": _FLAG,
    "core.sparsecheckoutcone": _FLAG,
    "extensions.objectformat": re.compile("sha1|sha256"),
    "i18n.commitencoding": re.compile(r"[\w-]{1,40}"),
    "init.defaultbranch": re.compile(r"[\w./-]{1,100}"),
    **{f"{who}.{what}": _TEXT for who in ("user", "author", "committer") for what in ("name", "email")},
}
"""Keys that are carried over, with the values that they may have."""
_PLAIN_SUBKEYS: Final = {
    "branch": {"remote": _TEXT, "merge": _TEXT},
    "remote": {"fetch": _TEXT, "url": _TEXT, "pushurl": _TEXT},
}
"""The same for sections with a name, such as `[branch "main"]`."""
_USER_KEYS: Final = frozenset({"core.autocrlf", "core.eol", "i18n.commitencoding", "init.defaultbranch"})
"""Keys of the user's own configuration that are carried over, besides names and addresses."""
_OURS: Final = """\
[core]
\tbare = false
\thooksPath = /dev/null
\tfsmonitor = false
\tuntrackedCache = false
\tattributesFile = /dev/null
\tlogAllRefUpdates = true
[gc]
\tauto = 0
[maintenance]
\tauto = false
[protocol]
\tallow = never
[submodule]
\trecurse = false
"""
NEW_REPOSITORY: Final = "[core]\n\tbare = false\n\tlogAllRefUpdates = true\n"
"""The beginning of the configuration of a repository that a command has created."""
_BARE_KEYS: Final = ("bare", "logallrefupdates")
_SECTION: Final = re.compile(r'\[\s*([\w.-]+)\s*(?:"((?:[^"\\\n]|\\.)*)")?\s*\]')
_KEY: Final = re.compile(r"([A-Za-z][\w-]*)[ \t]*")
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@]*@")


class Setting(NamedTuple):
    """A setting of a configuration file: section and key in small letters, the name in between, and the value."""

    section: str
    name: str
    """The name of a section such as `[branch "main"]`; empty if it has none."""
    key: str
    value: str

    @property
    def full_key(self) -> str:
        """Section and key, without the name."""
        return f"{self.section}.{self.key}"


def parse_configuration(data: bytes) -> list[Setting]:
    """Return the settings of a configuration file, in its order; reading ends where git would complain."""
    text, at = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n"), 0
    found: list[Setting] = []
    section, name = "", ""
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text[at] in "#;":
            at = _find_line_end(text, at)
        elif match := _SECTION.match(text, at):
            section, name, at = match[1].lower(), re.sub(r"\\(.)", r"\1", match[2] or ""), match.end()
            if match[2] is None and "." in section:  # the old form, [branch.main]
                section, _, name = section.partition(".")
        elif section and (match := _KEY.match(text, at)):
            value, at = _parse_value(text, match.end())
            found.append(Setting(section, name, match[1].lower(), value))
        else:
            break
    return found


def _find_line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _parse_value(text: str, at: int) -> tuple[str, int]:
    """Return a value and where it ends; a key without `=` is true."""
    if at >= len(text) or text[at] != "=":
        return "true", _find_line_end(text, at)
    escapes = {"n": "\n", "t": "\t", "b": "\b", "\n": ""}
    parts: list[str] = []
    kept = 0  # parts up to here are not white space at the end
    at, is_quoted = at + 1, False
    while at < len(text) and (text[at] != "\n"):
        letter = text[at]
        at += 1
        if letter == "\\" and at < len(text):
            parts.append(escapes.get(text[at], text[at]))
            at, kept = at + 1, len(parts)
        elif letter == '"':
            is_quoted, kept = not is_quoted, len(parts)
        elif letter in "#;" and not is_quoted:
            at = _find_line_end(text, at)
        elif is_quoted or not letter.isspace():
            parts.append(letter)
            kept = len(parts)
        elif parts:
            parts.append(letter)
    return "".join(parts[:kept]), at


def build_plain_configuration(settings: Iterable[Setting], *, users: Iterable[Setting] = (), start: str = _OURS) -> str:
    """Return the text of a configuration in which nothing names a program, made from a repository's and the user's."""
    kept = [each for each in users if _is_plain(each) and (each.full_key in _USER_KEYS or _is_identity(each))]
    kept += [each for each in settings if _is_plain(each)]
    lines = [start]
    for each in kept:
        value = _CREDENTIALS.sub("", each.value) if each.key.endswith("url") else each.value
        title = f'[{each.section} "{escape_value(each.name)}"]' if each.name else f"[{each.section}]"
        lines.append(f'{title}\n\t{each.key} = "{escape_value(value)}"\n')
    return "".join(lines)


def build_bare_or_plain_configuration(settings: Sequence[Setting]) -> tuple[str, bool]:
    """Return the configuration of a repository with what is plain in it alone, and whether anything was left out.

    Whether it is a bare repository stays as it is.
    """
    flags = {each.key: each.value for each in settings if _is_bare_flag(each)}
    lines = [f"\t{key} = {flags[key]}\n" for key in _BARE_KEYS if key in flags]
    text = build_plain_configuration(settings, start="".join(["[core]\n", *lines]) if lines else "")
    return text, not all(_is_plain(each) or _is_bare_flag(each) for each in settings)


def _is_bare_flag(setting: Setting) -> bool:
    is_known = setting.section == "core" and not setting.name and setting.key in _BARE_KEYS
    return is_known and bool(_FLAG.fullmatch(setting.value))


def _is_identity(setting: Setting) -> bool:
    return setting.section in {"user", "author", "committer"}


def _is_plain(setting: Setting) -> bool:
    if not setting.name:
        pattern = _PLAIN_KEYS.get(setting.full_key)
    else:
        pattern = _PLAIN_SUBKEYS.get(setting.section, {}).get(setting.key)
    return bool(pattern and pattern.fullmatch(setting.value) and _TEXT.fullmatch(setting.name))


def escape_value(value: str) -> str:
    """Return a value as it stands between quotation marks in a configuration."""
    return value.replace("\\", "\\\\").replace('"', '\\"')


def read_user_configuration(git_folder: str, home: str = "") -> list[Setting]:
    """Return the settings of the user's own configuration, with the files that it includes for a repository."""
    own = get_user_folder("XDG_CONFIG_HOME", ".config", home)
    paths = [os.path.join(own, "git", "config"), os.path.join(home or get_user_home(), ".gitconfig")]
    if given := os.environ.get("GIT_CONFIG_GLOBAL"):
        paths = [given]
    return [each for path in paths for each in _read_with_includes(path, git_folder, 0)]


def read_user_excludes(settings: Iterable[Setting]) -> bytes:
    """Return the user's own patterns of files that git ignores everywhere."""
    own = get_user_folder("XDG_CONFIG_HOME", ".config")
    path = os.path.join(own, "git", "ignore")
    for each in settings:
        if each.full_key == "core.excludesfile" and not each.name:
            path = os.path.expanduser(each.value)
    return _read_file(path)


def _read_with_includes(path: str, git_folder: str, depth: int) -> list[Setting]:
    found: list[Setting] = []
    for each in parse_configuration(_read_file(path)):
        found.append(each)
        is_include = each.section == "include" or (each.section == "includeif" and _holds(each.name, git_folder))
        if is_include and each.key == "path" and each.value and depth < _MOST_INCLUDES:
            included = os.path.join(os.path.dirname(path), os.path.expanduser(each.value))
            found += _read_with_includes(included, git_folder, depth + 1)
    return found


def _holds(condition: str, git_folder: str) -> bool:
    """Return True if the condition of an include is about the place of the repository, and holds."""
    kind, _, pattern = condition.partition(":")
    if kind not in {"gitdir", "gitdir/i"} or not pattern:
        return False
    pattern = os.path.expanduser(pattern) if pattern.startswith("~/") else pattern
    pattern = pattern if pattern.startswith("/") else f"**/{pattern}"
    pattern = f"{pattern}**" if pattern.endswith("/") else pattern
    flags = re.IGNORECASE if kind.endswith("/i") else 0
    return any(
        re.fullmatch(compile_glob(pattern.lstrip("/")).pattern, each.lstrip("/"), flags)
        for each in {git_folder, os.path.realpath(git_folder)}
    )


def _read_file(path: str) -> bytes:
    try:
        found = read_file_head(path, MOST_CONFIGURATION_BYTES)
    except UnreadableFile:
        return b""
    return b"" if found.is_truncated else found.data
