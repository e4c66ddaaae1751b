"""The address of a PostgreSQL database: what may be one, and what of it may be shown. Above: `store.py`.

Nothing here loads a database driver, so that a wrong address is refused where it is written.
"""

import importlib.util
import re
from typing import Final

from perdure.core.error import ConfigError

FORM: Final = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"

# An `@` that follows a `?` may end a password with a `?` in it. Then nothing is shown.
_PLACE: Final = r"(?P<{}>[^@/?#]*(?:/[^@/?#]*)?)"
_SHOWN: Final = re.compile(
    rf"postgres(?:ql)?://(?:[^@/?#]*@{_PLACE.format('place')}(?:\?.*)?|{_PLACE.format('other')}(?:\?[^@]*)?)", re.DOTALL
)


def checked_address(address: str) -> str:
    """An address that could be one of a database. Looks at the words alone."""
    if not isinstance(address, str) or not address.startswith(("postgres://", "postgresql://")):
        raise ConfigError(f"{_kind(address)} is no address of a PostgreSQL database: write '{FORM}'")
    if "\0" in address or any("\ud800" <= character <= "\udfff" for character in address):
        raise ConfigError(
            f"the address {shown(address)!r} must be text that UTF-8 can hold, without NUL: write '{FORM}'"
        )
    return address


def check_driver() -> None:
    """Refuse at once what could not be used later. The driver itself is loaded at first use."""
    if importlib.util.find_spec("psycopg") is None:
        raise driver_missing()


def driver_missing() -> ConfigError:
    """What to do about a driver that is not there, or not whole."""
    return ConfigError("the store 'postgresql://…' needs psycopg with its library: pip install 'perdure[postgres]'")


def shown(address: str) -> str:
    """Host and database; never the password, which may stand in front of them or behind."""
    match = _SHOWN.fullmatch(address)
    return f"postgresql://{(match['place'] or match['other'] or '') if match else '…'}"


def _kind(address: object) -> str:
    """What was given instead of an address. The text itself might hold a password."""
    return "this text" if isinstance(address, str) else repr(address)
