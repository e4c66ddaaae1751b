"""Names of files that tend to hold secrets, and are never read because of a mention. Above: `attachment.py`.

A pattern is matched, in any spelling of upper and lower case, against the name of a file; one that ends with a slash
against each folder on the way to it. One with slashes inside is matched against as many names in a row.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

DEFAULT_BLOCKED: Final[tuple[str, ...]] = (
    # variables and passwords
    ".env*", "*.env", ".envs/", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".htpasswd", ".git-credentials",
    "credentials*", "secrets", "secrets.*", "secrets/", "*.kdbx", "*.keychain*", ".vault-token",
    # keys
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk", "*.gpg",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*",
    # what programs keep for themselves
    ".git/", ".ssh/", ".gnupg/", ".aws/", ".azure/", ".kube/", "kubeconfig*", "*.kubeconfig", ".docker/config.json",
    ".dockercfg", ".config/gcloud/", ".config/gh/", ".npmrc", ".yarnrc*", ".pypirc", ".terraform/", "*.tfstate*",
    "*.tfvars*",
    # what was typed and seen elsewhere
    ".*_history", ".mozilla/", "cookies.sqlite*",
)  # fmt: skip
"""What is never read, whatever else is given."""


def blocking(steps: Sequence[str], patterns: Iterable[str]) -> str:
    """The pattern that keeps a file from being read, given the names on the way to it; empty when none does."""
    plain = [_plain(step) for step in steps]
    return next((pattern for pattern in patterns if _fits(plain, pattern)), "")


def _fits(names: Sequence[str], pattern: str) -> bool:
    wanted = [_plain(each) for each in pattern.strip("/").split("/")]
    last = len(names) - len(wanted)
    places = range(last) if pattern.endswith("/") else range(last, last + 1)
    return last >= 0 and any(all(map(fnmatchcase, names[at:], wanted)) for at in places)


def _plain(name: str) -> str:
    """A name as file systems see it that take several spellings for one.

    They differ in case, in the forms of characters, in those that nobody sees, and in dots at the end.
    """
    seen = [each for each in unicodedata.normalize("NFKC", name) if unicodedata.category(each) != "Cf"]
    return "".join(seen).casefold().rstrip(". ") or name
