"""What a store can do beyond the rest, kept when it is wrapped. Above: wrappers of stores. Below: `core/store.py`.

`isinstance(store, Searchable)` looks whether the class has the methods. So a wrapper must have them exactly when the
store inside has them, and there is a class for each combination that occurs.
"""

from collections.abc import Mapping
from typing import TypeVar, cast

from perdure.core.store import Store

W = TypeVar("W")

_combined: dict[tuple[type, ...], type] = {}


def matching(wrapper: type[W], store: Store, extras: Mapping[type, type[W]]) -> type[W]:
    """The kind of `wrapper` that can do what `store` can: `extras` has a subclass for each protocol."""
    chosen = tuple(extra for protocol, extra in extras.items() if isinstance(store, protocol))
    if not chosen:
        return wrapper
    if chosen not in _combined:
        body = {"__doc__": wrapper.__doc__, "__module__": wrapper.__module__}
        _combined[chosen] = type(wrapper.__name__, chosen, body)
    return cast("type[W]", _combined[chosen])
