"""Find the project and location for Vertex AI in the environment, and the file of Google's default credentials."""

# ruff: noqa: PTH111, PTH118, PTH123 - pathlib would cost every start milliseconds
import os
from typing import Final

import msgspec

from perdure._core.values.error import AuthFailed
from perdure._io.home.paths import get_user_home, has_user_home

from .lenient_json import as_dict, as_text

CREDENTIALS_VARIABLE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
TOKEN_VARIABLE: Final = "VERTEX_ACCESS_TOKEN"  # noqa: S105 - a name
DEFAULT_LOCATION: Final = "global"

_USUAL_PLACE: Final = (".config", "gcloud", "application_default_credentials.json")
_PROJECTS = ("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "VERTEXAI_PROJECT", "ANTHROPIC_VERTEX_PROJECT_ID")
_LOCATIONS = ("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION", "VERTEXAI_LOCATION", "CLOUD_ML_REGION")


def find_project() -> str:
    """Return the Google Cloud project from the environment or the default credentials; empty if there is none."""
    return _get_first_value(_PROJECTS) or _read_project(get_adc_path())


def find_location() -> str:
    """Return the Google Cloud location for Vertex AI from the environment; `global` if none is set."""
    return _get_first_value(_LOCATIONS) or DEFAULT_LOCATION


def get_adc_path() -> str:
    """Return the path of the file with the application default credentials, which may not exist."""
    named = os.environ.get(CREDENTIALS_VARIABLE, "").strip()
    *folders, name = _USUAL_PLACE
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.join(get_user_home(), *folders)
    return named or os.path.join(folder, name)


def refuse_default_credentials_of_others() -> None:
    """Raise `AuthFailed` if Google's library would take the default credentials from the working folder.

    It looks for them there if there is no home folder, and a repository could ship some.
    """
    place = os.path.expanduser(os.path.join("~", *_USUAL_PLACE))
    is_named = os.environ.get(CREDENTIALS_VARIABLE) or os.environ.get("CLOUDSDK_CONFIG")
    if not has_user_home() and not is_named and os.path.lexists(place):
        raise AuthFailed(
            f"the credentials in {place!r} are not used: there is no home folder, and they are in the working folder; "
            f"set HOME to an absolute path, or {CREDENTIALS_VARIABLE}"
        )


def _get_first_value(variables: tuple[str, ...]) -> str:
    return next((value for each in variables if (value := os.environ.get(each, "").strip())), "")


def _read_project(path: str) -> str:
    try:
        with open(path, "rb") as file:
            told = as_dict(msgspec.json.decode(file.read()))
    except (OSError, msgspec.DecodeError):
        return ""
    return as_text(told.get("project_id")) or as_text(told.get("quota_project_id"))
