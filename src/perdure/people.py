"""What people are asked and shown: for tools that ask, and for screens."""

from ._facade import export

NAMES_BY_MODULE = {
    "._core.people.inbox": ("HostEvent",),
    "._core.tools.slots": ("Askable", "Showable", "SlotLifetime", "TextQuestion"),
    "._people.kinds": (
        "Choice",
        "Confirm",
        "CustomSlot",
        "Form",
        "Markdown",
        "MultiSelect",
        "Option",
        "Picture",
        "PlainText",
        "Progress",
        "Table",
    ),
    "._people.view": ("SlotView",),
    "._runtime.session.slots": ("DisplayAdapter",),
}
"""The public names, by the module that defines them."""

__all__, __getattr__, __dir__ = export(__name__, NAMES_BY_MODULE)
