"""What decides whether a tool call runs, and the secrets that tools get: for authors of rules, gates and vaults."""

from ._facade import export

NAMES_BY_MODULE = {
    "._core.permission.gate": (
        "Explanation",
        "Gate",
        "Handler",
        "SupportsAddedRules",
        "SupportsExplain",
        "SupportsGrants",
        "SupportsStoredQuestions",
        "allow_all",
        "deny_all",
        "later",
    ),
    "._core.permission.grants": ("Grants", "Offer"),
    "._core.permission.request": ("Covers", "PermissionRequest", "Verdict"),
    "._core.permission.rules": ("Rule",),
    "._core.permission.targets.command": ("CommandTarget",),
    "._core.permission.targets.path": ("PathTarget",),
    "._core.permission.targets.patterns": ("Match", "Pattern", "Target", "command", "path", "url"),
    "._core.permission.targets.text": ("TextTarget", "UncomputableTarget"),
    "._core.permission.targets.url": ("UrlTarget",),
    "._core.values.binding": ("ApprovalBinding",),
    "._core.values.event": ("Scope",),
    "._credentials.credentialed": ("credentialed",),
    "._credentials.file_vault": ("FileVault",),
    "._credentials.fixed_redactor": ("FixedSecretsRedactor", "RedactingStream"),
    "._credentials.redacted_model": ("redacted_model",),
    "._credentials.redactor": ("Redactor",),
    "._credentials.secret": ("Secret",),
    "._credentials.vault": (
        "BoundVault",
        "EnvironmentVault",
        "KeyringVault",
        "MemoryVault",
        "SecretBinding",
        "Vault",
        "first_of",
    ),
    "._people.grants": ("GrantFile",),
}
"""The public names, by the module that defines them."""

__all__, __getattr__, __dir__ = export(__name__, NAMES_BY_MODULE)
