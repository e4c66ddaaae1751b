"""Credentials: vaults with secrets, `{{name}}` placeholders for them in tool arguments, and redaction of secrets in
all output.

The model writes `{{name}}`; the tool gets the value; nothing that is stored, shown or logged contains the value.
"""

from .credentialed import credentialed
from .file_vault import FileVault
from .fixed_redactor import FixedSecretsRedactor, RedactingStream
from .forms import list_secret_forms
from .redacted_model import CombinedRedactor, redacted_model
from .redactor import Redactor
from .secret import Secret, find_placeholder_names, substitute_placeholders
from .vault import (
    BoundVault,
    EnvironmentVault,
    KeyringVault,
    MemoryVault,
    SecretBinding,
    Vault,
    first_of,
    list_local_secret_names,
)

__all__ = [
    "BoundVault",
    "CombinedRedactor",
    "EnvironmentVault",
    "FileVault",
    "FixedSecretsRedactor",
    "KeyringVault",
    "MemoryVault",
    "RedactingStream",
    "Redactor",
    "Secret",
    "SecretBinding",
    "Vault",
    "credentialed",
    "find_placeholder_names",
    "first_of",
    "list_local_secret_names",
    "list_secret_forms",
    "redacted_model",
    "substitute_placeholders",
]
