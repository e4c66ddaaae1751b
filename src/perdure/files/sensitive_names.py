"""File names that often mean secrets, such as `.env`: such a file is not read on behalf of a project or a model.

A pattern is matched, ignoring case, against the name of a file; one that ends with a slash against each folder of its
path. A pattern with slashes inside is matched against as many consecutive names.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

SENSITIVE_NAMES: Final[tuple[str, ...]] = (
    # variables and passwords
    ".env*", "*.env", ".envs/", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".htpasswd", ".git-credentials",
    "credentials*", "client_secret*", "secrets", "secrets.*", "secrets/",
    "service-account*.json", "service_account*.json", "auth.json", "token.json", "tokens.json",
    "*.kdbx", "*.keychain*", ".vault-token",
    # keys
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk", "*.gpg", "*.p8", "*.ovpn",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*_rsa", "*_ed25519",
    # what programs keep for themselves
    ".git/", ".ssh/", ".gnupg/", ".aws/", ".azure/", ".kube/", "kubeconfig*", "*.kubeconfig", ".docker/config.json",
    ".dockercfg", ".config/gcloud/", ".config/gh/", ".npmrc", ".yarnrc*", ".pypirc", ".terraform/", "*.tfstate*",
    "*.tfvars*",
    # what was typed and seen elsewhere
    ".*_history", ".mozilla/", "cookies.sqlite*",
)  # fmt: skip
"""Patterns of names that often mean secrets."""


def find_blocking_pattern(steps: Sequence[str], patterns: Iterable[str]) -> str:
    """Return the pattern that forbids reading a file, whose path is `steps`; empty if it may be read."""
    plain = [_normalize_name(step) for step in steps]
    return next((pattern for pattern in patterns if _is_match(plain, pattern)), "")


def _is_match(names: Sequence[str], pattern: str) -> bool:
    wanted = [_normalize_name(each) for each in pattern.strip("/").split("/")]
    last = len(names) - len(wanted)
    places = range(last) if pattern.endswith("/") else range(last, last + 1)
    return last >= 0 and any(all(map(fnmatchcase, names[at:], wanted)) for at in places)


def _normalize_name(name: str) -> str:
    """Normalize a name, as file systems do that treat several spellings as one.

    Spellings differ in case, in Unicode forms, in invisible characters, and in trailing dots.
    """
    seen = [each for each in unicodedata.normalize("NFKC", name) if unicodedata.category(each) != "Cf"]
    return "".join(seen).casefold().rstrip(". ") or name
