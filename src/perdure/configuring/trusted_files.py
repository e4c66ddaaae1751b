"""Record of the configuration files that the user trusts, by the SHA-256 of their content."""

import os

from perdure.context.trust_file import TrustedItem, TrustFile
from perdure.core import check


class TrustedFiles:
    """Record of trusted configuration files, stored in a file that only its owner can write to.

    Call it with a digest, as `load_config(…, trusted=…)` does. If the record is damaged, or others can write to it,
    nothing is trusted.
    """

    def __init__(self, path: str) -> None:
        check.require_text("TrustedFiles", "path", path, non_empty=True)
        self._file = TrustFile(path)
        self.path = self._file.path
        """Path of the file that contains the record."""

    def __call__(self, digest: str) -> bool:
        """Return True if the user trusts content with this SHA-256."""
        return any(each.digest == digest for each in self._file.load_trusted())

    def trust(self, path: str, digest: str) -> None:
        """Record that the user trusts the file `path` with this content; trust in its earlier content ends."""
        self._file.add_trusted(TrustedItem(digest, os.path.realpath(path)))

    def revoke(self, path: str, digest: str) -> bool:
        """Revoke the trust in this content and in any earlier content of the file; return False if there was none."""
        return self._file.remove_trusted(os.path.realpath(path), digest)
