"""Which configuration files somebody has agreed to, by their content. Above: the command line. Below: `context`."""

import os

from perdure.context.trust_file import Agreed, TrustFile
from perdure.core import check


class TrustedFiles:
    """Trust in configuration files, kept in a file that its owner alone can write to.

    It can be called with a digest, which is what `load_config(…, trusted=…)` does. A file that is damaged, or that
    others can write to, trusts nothing.
    """

    def __init__(self, path: str) -> None:
        check.text("TrustedFiles", "path", path, filled=True)
        self._file = TrustFile(path)
        self.path = self._file.path
        """The file."""

    def __call__(self, digest: str) -> bool:
        """Whether somebody has agreed to this content."""
        return any(each.digest == digest for each in self._file.agreed())

    def trust(self, path: str, digest: str) -> None:
        """Agree to a file as it is now, in place of what it was before."""
        self._file.add(Agreed(digest, os.path.realpath(path)))

    def revoke(self, path: str, digest: str) -> bool:
        """Take it back, for this content and for any other that the file had; false when there was no trust."""
        return self._file.remove(os.path.realpath(path), digest)
