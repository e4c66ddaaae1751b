"""Read and write files with profiles (a model's capabilities at one URL), made by a probe or by hand.

A file describes one model at one base URL. `PERDURE_PROFILES` names the folder; otherwise it is `perdure/profiles` in
`XDG_CONFIG_HOME`, or in `~/.config` if that is not set.
"""

# ruff: noqa: PTH103, PTH105, PTH111, PTH118, PTH123, PTH208 - pathlib would cost every start milliseconds
import os
import re
from typing import Any

import msgspec
from msgspec import Struct

from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import convert
from perdure._io.home.paths import get_user_folder
from perdure._models.endpoint.profile import Profile

from .entry import WireName

FOLDER_VARIABLE = "PERDURE_PROFILES"
"""Environment variable that names the folder."""


class SavedProfile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content of a profile file: the known capabilities of one model at one base URL."""

    base_url: str
    model: str
    wire: WireName = "openai_chat"
    key_variable: str = ""
    """Environment variable that contains the key, for a base URL that is not in the catalogue."""
    profile: dict[str, Any] = {}
    """Fields of a `Profile`. They override the catalogue."""
    learned: dict[str, str] = {}
    """Findings of the probe, for people to read."""


def get_profiles_folder() -> str:
    """Return the path of the folder with the profile files of models."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return os.path.expanduser(named)
    return os.path.join(get_user_folder("XDG_CONFIG_HOME", ".config"), "perdure", "profiles")


def load_profile(base_url: str, model: str) -> SavedProfile | None:
    """Load the saved profile of this model at this base URL, or `None`. Raises `ConfigError` for a broken file."""
    try:
        files = sorted(each for each in os.listdir(get_profiles_folder()) if each.endswith(".json"))
    except OSError:
        return None
    for each in files:
        kept = _read_profile_file(os.path.join(get_profiles_folder(), each))
        if kept.model == model and normalize_url(kept.base_url) == normalize_url(base_url):
            return kept
    return None


def save_profile(profile: SavedProfile) -> str:
    """Write a profile to its file atomically, replacing an older one. Return its path."""
    path = os.path.join(get_profiles_folder(), _build_file_name(profile))
    unfinished = f"{path}.{os.getpid()}"
    os.makedirs(get_profiles_folder(), mode=0o700, exist_ok=True)
    with open(unfinished, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(profile), indent=2) + b"\n")
    os.replace(unfinished, path)
    return path


def normalize_url(url: str) -> str:
    """Normalize a URL for comparison: lower-case scheme and host, no trailing slash."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}{separator}{host.lower()}{slash}{path}".rstrip("/")


def _build_file_name(kept: SavedProfile) -> str:
    from zlib import crc32

    about = f"{normalize_url(kept.base_url).partition('://')[2]} {kept.model}"
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", about).strip("-.")[:80]
    return f"{readable}-{crc32(about.encode()):08x}.json"


def _read_profile_file(path: str) -> SavedProfile:
    advice = "run `perdure probe` again, or delete the file"
    try:
        with open(path, "rb") as file:
            kept = msgspec.json.decode(file.read(), type=SavedProfile)
        convert({"provider": "", "model": kept.model, **kept.profile}, Profile)
    except OSError as error:
        raise ConfigError(f"the profile {path!r} cannot be read: {error.strerror}; {advice}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(f"the profile {path!r} is invalid: {error}; {advice}") from error
    if unknown := sorted(kept.profile.keys() - set(Profile.__struct_fields__)):
        raise ConfigError(f"the profile {path!r} has the unknown field {unknown[0]!r}; {advice}")
    return kept
