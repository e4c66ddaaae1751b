"""The front door: modules whose names are imported when they are first used, at no cost before."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from sys import modules


def export(
    facade: str, names_by_module: Mapping[str, Sequence[str]]
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a public module, from its names by their modules."""
    homes = {name: module for module, names in names_by_module.items() for name in names}
    public = sorted(homes)

    def get_name(name: str) -> object:
        """Import a name, and keep it, so that its next use does not come here."""
        module = homes.get(name)
        if module is None:
            raise AttributeError(f"module {facade!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"perdure{module}"), name)
        vars(modules[facade])[name] = value
        return value

    return public, get_name, lambda: public
