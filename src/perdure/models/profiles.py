"""Profiles that are kept in files: what a probe has learned, or somebody wrote. Above: `opening.py`, `probe/`.
Below: `profile.py`.

A file is about one model at one address. `PERDURE_PROFILES` names the folder; otherwise it is `perdure/profiles` in
the folder for settings, which is `~/.config` unless `XDG_CONFIG_HOME` says otherwise.
"""

# ruff: noqa: PTH103, PTH105, PTH111, PTH118, PTH123, PTH208 - pathlib would cost every start milliseconds
import os
import re
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.error import ConfigError

from .catalog import WireName
from .profile import Profile

FOLDER = "PERDURE_PROFILES"
"""The environment variable that names the folder."""


class KeptProfile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one model at one address."""

    base_url: str
    model: str
    wire: WireName = "openai_chat"
    key_variable: str = ""
    """The environment variable that holds the key, for an address that is no provider of the catalogue."""
    profile: dict[str, Any] = {}
    """Fields of a `Profile`. They win over what the catalogue says."""
    learned: dict[str, str] = {}
    """How it was found out, for people."""


def folder() -> str:
    """Where the files are."""
    if named := os.environ.get(FOLDER):
        return os.path.expanduser(named)
    settings = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(settings, "perdure", "profiles")


def kept_profile(base_url: str, model: str) -> KeptProfile | None:
    """What a file says about this model at this address, if there is one. Raises `ConfigError` for a broken file."""
    try:
        files = sorted(each for each in os.listdir(folder()) if each.endswith(".json"))
    except OSError:
        return None
    for each in files:
        kept = _read(os.path.join(folder(), each))
        if kept.model == model and plain_url(kept.base_url) == plain_url(base_url):
            return kept
    return None


def keep_profile(kept: KeptProfile) -> str:
    """Write the file of a profile, whole or not at all, in place of an older one. Returns its path."""
    path = os.path.join(folder(), _file_name(kept))
    unfinished = f"{path}.{os.getpid()}"
    os.makedirs(folder(), mode=0o700, exist_ok=True)
    with open(unfinished, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
    os.replace(unfinished, path)
    return path


def plain_url(url: str) -> str:
    """An address as addresses are compared."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}{separator}{host.lower()}{slash}{path}".rstrip("/")


def _file_name(kept: KeptProfile) -> str:
    from zlib import crc32

    about = f"{plain_url(kept.base_url).partition('://')[2]} {kept.model}"
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", about).strip("-.")[:80]
    return f"{readable}-{crc32(about.encode()):08x}.json"


def _read(path: str) -> KeptProfile:
    advice = "run `perdure probe` again, or delete the file"
    try:
        with open(path, "rb") as file:
            kept = msgspec.json.decode(file.read(), type=KeptProfile)
        msgspec.convert({"provider": "", "model": kept.model, **kept.profile}, Profile)
    except OSError as error:
        raise ConfigError(f"the profile {path!r} cannot be read: {error.strerror}; {advice}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(f"the profile {path!r} cannot be understood: {error}; {advice}") from error
    if unknown := sorted(kept.profile.keys() - set(Profile.__struct_fields__)):
        raise ConfigError(f"the profile {path!r} has a field {unknown[0]!r} that no profile has; {advice}")
    return kept
