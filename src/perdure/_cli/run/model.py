"""Choose the model of `perdure run` when `--model` is not given.

In this order: the variable PERDURE_MODEL; the model that project files suggest; the first provider whose key is set; a
model that runs in this process; the offline demonstration, which is always available.
"""

import os
from typing import Final, NamedTuple

MODEL_VARIABLE: Final = "PERDURE_MODEL"
_ABOUT_LOCAL: Final = "it is tiny (135 million parameters), runs in this process, and is often wrong"
_KEY_HINT: Final = "for good answers set a key, such as ANTHROPIC_API_KEY"


class ModelChoice(NamedTuple):
    """Name of the model to use, and why it was chosen."""

    model: str
    reason: str
    """The reason; empty when the user named the model."""


def choose_model(named: str | None = None, suggested: ModelChoice | None = None) -> ModelChoice:
    """Choose the first of: the model the user named, PERDURE_MODEL, the project's suggestion, the default.

    `suggested` is what the project files suggest. The default is a provider whose API key is set, or else a model of
    this process.
    """
    if named:
        return ModelChoice(named, "")
    if kept := os.environ.get(MODEL_VARIABLE):
        return ModelChoice(kept, f"{MODEL_VARIABLE} is set")
    return suggested or _find_keyed_provider() or _choose_offline_model()


def is_in_process_model(model: str) -> bool:
    """Return True if the model runs in this process (`local` or `demo`); such models fail on long instructions."""
    return model.replace("/", ":").partition(":")[0].lower() in {"local", "demo"}


def _find_keyed_provider() -> ModelChoice | None:
    """Return the model of the first provider whose API key is set.

    Providers without keys must be named: they may not be running.
    """
    from perdure._models.catalogue.providers import PROVIDERS
    from perdure._models.catalogue.status import get_provider_status

    for provider in PROVIDERS:
        if provider.needs_key and provider.default_model:
            offer = get_provider_status(provider)
            if offer.available:
                return ModelChoice(f"{provider.name}:{provider.default_model}", offer.why)
    return None


def _choose_offline_model() -> ModelChoice:
    from perdure._models.local.weights import get_install_command

    why = "no provider key is set"
    command = get_install_command()
    if not command:
        return ModelChoice("local", f"{why}; {_ABOUT_LOCAL}; {_KEY_HINT}")
    return ModelChoice("demo", f"{why}, and no local model is installed: {command}; {_KEY_HINT}")
