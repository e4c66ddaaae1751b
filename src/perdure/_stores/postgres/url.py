"""The URL of a PostgreSQL database: check it, and remove its secrets before it is shown.

No database driver is imported here, so that a wrong URL is refused where it is written.
"""

import importlib.util
import re
from typing import Final

from perdure._core.values.error import ConfigError

URL_FORM: Final = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"

# An `@` that follows a `?` may end a password with a `?` in it. Then nothing is shown.
_PLACE: Final = r"(?P<{}>[^@/?#]*(?:/[^@/?#]*)?)"
_SHOWN: Final = re.compile(
    rf"postgres(?:ql)?://(?:[^@/?#]*@{_PLACE.format('place')}(?:\?.*)?|{_PLACE.format('other')}(?:\?[^@]*)?)", re.DOTALL
)


def validate_url(address: str) -> str:
    """Return the URL if it can be that of a PostgreSQL database; raise `ConfigError` otherwise. Opens no connection."""
    if not isinstance(address, str) or not address.startswith(("postgres://", "postgresql://")):
        raise ConfigError(f"{_describe_value(address)} is no address of a PostgreSQL database: write '{URL_FORM}'")
    if "\0" in address or any("\ud800" <= character <= "\udfff" for character in address):
        raise ConfigError(
            f"the address {redact_url(address)!r} must be text that UTF-8 can hold, without NUL: write '{URL_FORM}'"
        )
    return address


def check_driver() -> None:
    """Raise `ConfigError` unless psycopg, the PostgreSQL driver, is installed. Does not import it."""
    if importlib.util.find_spec("psycopg") is None:
        raise build_driver_missing_error()


def build_driver_missing_error() -> ConfigError:
    """Build the error that says that psycopg, the PostgreSQL driver, is missing or incomplete."""
    return ConfigError("the store 'postgresql://…' needs psycopg with its library: pip install 'perdure[postgres]'")


def redact_url(address: str) -> str:
    """Return a database URL in a form that can be shown: only host and database, never the password."""
    match = _SHOWN.fullmatch(address)
    return f"postgresql://{(match['place'] or match['other'] or '') if match else '…'}"


def _describe_value(address: object) -> str:
    """Describe a value that is not a URL. The text itself might contain a password."""
    return "this text" if isinstance(address, str) else repr(address)
