"""Choose the class of a store wrapper, so that it has the optional features of the store that it wraps.

`isinstance(store, SearchableStore)` tests whether the class has the methods. So a wrapper must have them exactly when
the wrapped store has them, and there is a class for each combination that occurs.
"""

from collections.abc import Mapping
from typing import TypeVar, cast

from perdure._core.log.store import Store

W = TypeVar("W")

_combined: dict[tuple[type, ...], type] = {}


def choose_wrapper_class(wrapper: type[W], store: Store, mixins: Mapping[type, type[W]]) -> type[W]:
    """Return a subclass of `wrapper` with the mixin from `mixins` for each optional protocol that `store`
    implements.
    """
    chosen = tuple(extra for protocol, extra in mixins.items() if isinstance(store, protocol))
    if not chosen:
        return wrapper
    if chosen not in _combined:
        body = {"__doc__": wrapper.__doc__, "__module__": wrapper.__module__}
        _combined[chosen] = type(wrapper.__name__, chosen, body)
    return cast("type[W]", _combined[chosen])
