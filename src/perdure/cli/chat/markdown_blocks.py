"""Split Markdown that arrives in pieces into blocks that are complete, and a tail that may still change."""

import re
from typing import Final

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")


class MarkdownBlockSplitter:
    """Accumulates streamed Markdown, and returns each block once it is complete.

    A block ends at a blank line outside a code fence: paragraphs, lists, tables and code are never cut in two.
    """

    def __init__(self) -> None:
        self.tail = ""
        """The text after the last complete block."""
        self._scanned = 0
        """Characters of the tail that end with a line break and were looked at."""
        self._fence = ""
        """The fence of the code block that the scanned text is in; empty outside of one."""

    def feed(self, text: str) -> list[str]:
        """Add a piece of text, and return the blocks that it completed."""
        self.tail += text
        blocks: list[str] = []
        while (end := self.tail.find("\n", self._scanned)) >= 0:
            line = self.tail[self._scanned : end]
            if not self._fence and not line.strip():
                block, self.tail, self._scanned = self.tail[:end], self.tail[end + 1 :], 0
                blocks += [block] if block.strip() else []
                continue
            self._scan_fence(line)
            self._scanned = end + 1
        return blocks

    def finish(self) -> list[str]:
        """Return the rest of the text as a last block, and begin anew; nothing if there is none."""
        rest, self.tail, self._scanned, self._fence = self.tail, "", 0, ""
        return [rest] if rest.strip() else []

    def _scan_fence(self, line: str) -> None:
        found = _FENCE.match(line)
        if found is None:
            return
        if not self._fence:
            self._fence = found[1]
        elif found[1].startswith(self._fence) and not line[found.end() :].strip():
            self._fence = ""
