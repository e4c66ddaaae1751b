"""Which model answers when nobody names one. Above: the commands that ask a model. Below: `models`.

The variable PERDURE_MODEL comes first; then what the files of a project suggest; then the first provider whose key is
here; then weights that run in this process; then the demonstration, which is always here.
"""

import os
from typing import Final, NamedTuple

VARIABLE: Final = "PERDURE_MODEL"


class Choice(NamedTuple):
    """A model, and what made it the one."""

    model: str
    why: str
    """Empty when it was named."""


def chosen(named: str | None = None, suggested: Choice | None = None) -> Choice:
    """The model that was named, or else the one that is most likely wanted: what the person's own variable says counts
    before what files suggest.
    """
    if named:
        return Choice(named, "")
    if kept := os.environ.get(VARIABLE):
        return Choice(kept, f"{VARIABLE} is set")
    return suggested or _with_a_key() or _without()


def has_little_room(model: str) -> bool:
    """Whether a model runs in this process: those have small windows, and lose their way in long instructions."""
    return model.replace("/", ":").partition(":")[0].lower() in {"local", "demo"}


def _with_a_key() -> Choice | None:
    """The first provider that needs a key, and has one. Who needs none has to be named: nobody knows if it is there."""
    from perdure.models.availability import offer_of
    from perdure.models.catalog import PROVIDERS

    for provider in PROVIDERS:
        if provider.key_needed and provider.default_model:
            offer = offer_of(provider)
            if offer.available:
                return Choice(f"{provider.name}:{provider.default_model}", offer.why)
    return None


def _without() -> Choice:
    from perdure.models.local import missing

    why = "no key of a provider is set"
    command = missing()
    if not command:
        return Choice("local", f"{why}, and this one runs here")
    return Choice("demo", f"{why}, and a model that runs here is not installed: {command}")
