"""Credentials: a vault that knows values, placeholders that stand for them, and a scrubber that takes them out again.

Above: assembly and callers. Below: core. The model writes `{{name}}`; the tool is given the value; nothing that is
stored, shown or logged has it.
"""

from .family import FamilyRedactor
from .file_vault import FileVault
from .forms import forms_of
from .listing import listed
from .model import scrubbed_model
from .redactor import Redactor
from .scrub import ScrubbedStream, Scrubber
from .secret import Secret
from .substitute import names_in, substituted
from .vault import EnvironmentVault, KeyringVault, MemoryVault, Vault, first_of
from .wrapper import credentialed

__all__ = [
    "EnvironmentVault",
    "FamilyRedactor",
    "FileVault",
    "KeyringVault",
    "MemoryVault",
    "Redactor",
    "ScrubbedStream",
    "Scrubber",
    "Secret",
    "Vault",
    "credentialed",
    "first_of",
    "forms_of",
    "listed",
    "names_in",
    "scrubbed_model",
    "substituted",
]
