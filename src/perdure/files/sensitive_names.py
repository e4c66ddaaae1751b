"""Names of files that usually contain secrets, such as `.env`, which are not read on behalf of a project or a model.

A pattern is matched, ignoring case, against the name of a file; one that ends with a slash against each folder of its
path. A pattern with slashes inside is matched against as many consecutive names.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase, translate
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
_MOST_KNOWN: Final = 100_000


def find_blocking_pattern(steps: Sequence[str], patterns: Iterable[str]) -> str:
    """Return the pattern that forbids reading the file with the path `steps`; empty if the file may be read."""
    plain = [normalize_name(step) for step in steps]
    return next((pattern for pattern in patterns if _is_match(plain, pattern)), "")


class BlockedNames:
    """A compiled set of file name patterns, which quickly finds the pattern that blocks a path.

    Most names match no pattern, and cost one look-up.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        steps = {normalize_name(step) for pattern in patterns for step in pattern.strip("/").split("/")}
        self._any_step = re.compile("|".join([translate(each) for each in sorted(steps)]) or r"(?!)")
        self._known: dict[str, bool] = {}

    def find(self, steps: Sequence[str], *, is_folder: bool = False) -> str:
        """Return the pattern that forbids a file, or a folder with everything in it; empty if it may be read."""
        if not any(self.may_match(step) for step in steps):
            return ""
        return find_blocking_pattern((*steps, "") if is_folder else steps, self._patterns)

    def may_match(self, name: str) -> bool:
        """Return True if a path with this name in it may match a pattern."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[name] = self._any_step.match(normalize_name(name)) is not None
        return known


def _is_match(names: Sequence[str], pattern: str) -> bool:
    wanted = [normalize_name(each) for each in pattern.strip("/").split("/")]
    last = len(names) - len(wanted)
    places = range(last) if pattern.endswith("/") else range(last, last + 1)
    return last >= 0 and any(all(map(fnmatchcase, names[at:], wanted)) for at in places)


def normalize_name(name: str) -> str:
    """Normalize a file name, so that spellings which file systems treat as equal are equal.

    Spellings differ in case, in Unicode forms, in invisible characters, and in trailing dots.
    """
    seen = [each for each in unicodedata.normalize("NFKC", name) if unicodedata.category(each) != "Cf"]
    return "".join(seen).casefold().rstrip(". ") or name
