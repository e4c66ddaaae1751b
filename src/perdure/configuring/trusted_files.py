"""Record of the configuration files that the user trusts, each identified by a SHA-256 digest.

The digest covers the content of the file, its path, and the files that it names.
"""

import os
from collections.abc import Callable, Mapping

from perdure.context.trusted_hashes_file import TrustedItem, TrustFile
from perdure.core import argument_checks


def is_digest_trusted(trusted: Callable[[str], bool], digest: str) -> bool:
    """Return True if the function `trusted` accepts a digest of files. Raises `ConfigError` if it returns no bool."""
    argument_checks.require_plain_function("load_config", "trusted", trusted)
    answer = trusted(digest)
    argument_checks.require_plain_return_type("trusted", trusted, answer, bool, "True or False")
    return answer


class TrustedFiles:
    """Record of trusted configuration files, stored in a file that only its owner can write to.

    Call it with a digest, as `load_config(…, trusted=…)` does. If the record is damaged, or others can write to it,
    nothing is trusted.
    """

    def __init__(self, path: str) -> None:
        argument_checks.require_text("TrustedFiles", "path", path, non_empty=True)
        self._file = TrustFile(path)
        self.path = self._file.path
        """Path of the file that contains the record."""

    def __call__(self, digest: str) -> bool:
        """Return True if the user trusts a configuration with this digest (`Config.digest`)."""
        return any(each.digest == digest for each in self._file.load_trusted())

    def trust(self, path: str, digest: str, files: Mapping[str, str] | None = None) -> None:
        """Record that the user trusts the file `path` with this digest; trust in its earlier content ends.

        `files` (`Config.files`) has the digest of each file that it names, so that `list_changes` can name those that
        change later.
        """
        self._file.add_trusted(TrustedItem(digest, _resolve(path), files=dict(files or {})))

    def revoke(self, path: str) -> bool:
        """Revoke the trust in a file, whatever its content; return False if there was none."""
        return self._file.remove_trusted(_resolve(path))

    def list_changes(self, path: str, files: Mapping[str, str]) -> list[str]:
        """Return the files behind a configuration that were changed, added or removed since the user trusted it."""
        agreed = [each.files for each in self._file.load_trusted() if each.path == _resolve(path) and each.files]
        if not agreed:
            return []
        return sorted(each for each in {*agreed[0], *files} if agreed[0].get(each) != files.get(each))


def _resolve(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))  # noqa: PTH111 - a Path would cost milliseconds
