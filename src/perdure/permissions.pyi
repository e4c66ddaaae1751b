# Written by `python -m scripts.exports`, from the table in permissions.py. Not edited by hand.

from ._core.permission.gate import Explanation as Explanation
from ._core.permission.gate import Gate as Gate
from ._core.permission.gate import Handler as Handler
from ._core.permission.gate import SupportsAddedRules as SupportsAddedRules
from ._core.permission.gate import SupportsExplain as SupportsExplain
from ._core.permission.gate import SupportsGrants as SupportsGrants
from ._core.permission.gate import SupportsStoredQuestions as SupportsStoredQuestions
from ._core.permission.gate import allow_all as allow_all
from ._core.permission.gate import deny_all as deny_all
from ._core.permission.gate import later as later
from ._core.permission.grants import Grants as Grants
from ._core.permission.grants import Offer as Offer
from ._core.permission.request import Covers as Covers
from ._core.permission.request import PermissionRequest as PermissionRequest
from ._core.permission.request import Verdict as Verdict
from ._core.permission.rules import Rule as Rule
from ._core.permission.targets.command import CommandTarget as CommandTarget
from ._core.permission.targets.path import PathTarget as PathTarget
from ._core.permission.targets.patterns import Match as Match
from ._core.permission.targets.patterns import Pattern as Pattern
from ._core.permission.targets.patterns import Target as Target
from ._core.permission.targets.patterns import command as command
from ._core.permission.targets.patterns import path as path
from ._core.permission.targets.patterns import url as url
from ._core.permission.targets.text import TextTarget as TextTarget
from ._core.permission.targets.text import UncomputableTarget as UncomputableTarget
from ._core.permission.targets.url import UrlTarget as UrlTarget
from ._core.values.binding import ApprovalBinding as ApprovalBinding
from ._core.values.event import Scope as Scope
from ._credentials.credentialed import credentialed as credentialed
from ._credentials.file_vault import FileVault as FileVault
from ._credentials.fixed_redactor import FixedSecretsRedactor as FixedSecretsRedactor
from ._credentials.fixed_redactor import RedactingStream as RedactingStream
from ._credentials.redacted_model import redacted_model as redacted_model
from ._credentials.redactor import Redactor as Redactor
from ._credentials.secret import Secret as Secret
from ._credentials.vault import BoundVault as BoundVault
from ._credentials.vault import EnvironmentVault as EnvironmentVault
from ._credentials.vault import KeyringVault as KeyringVault
from ._credentials.vault import MemoryVault as MemoryVault
from ._credentials.vault import SecretBinding as SecretBinding
from ._credentials.vault import Vault as Vault
from ._credentials.vault import first_of as first_of
from ._people.grants import GrantFile as GrantFile

__all__ = [
    "ApprovalBinding",
    "BoundVault",
    "CommandTarget",
    "Covers",
    "EnvironmentVault",
    "Explanation",
    "FileVault",
    "FixedSecretsRedactor",
    "Gate",
    "GrantFile",
    "Grants",
    "Handler",
    "KeyringVault",
    "Match",
    "MemoryVault",
    "Offer",
    "PathTarget",
    "Pattern",
    "PermissionRequest",
    "RedactingStream",
    "Redactor",
    "Rule",
    "Scope",
    "Secret",
    "SecretBinding",
    "SupportsAddedRules",
    "SupportsExplain",
    "SupportsGrants",
    "SupportsStoredQuestions",
    "Target",
    "TextTarget",
    "UncomputableTarget",
    "UrlTarget",
    "Vault",
    "Verdict",
    "allow_all",
    "command",
    "credentialed",
    "deny_all",
    "first_of",
    "later",
    "path",
    "redacted_model",
    "url",
]
