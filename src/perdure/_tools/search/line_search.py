"""Program that searches lines of files with Python's regular expressions, in a child process that can be killed.

Some patterns take for ever on some lines, and Python cannot interrupt itself there. So the search runs in a process of
its own: it reads batches of contents from standard input, and writes the lines that match to standard output, as JSON.
It imports nothing of the package, so that it starts quickly.
"""

import json
import re
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple


class FoundLines(NamedTuple):
    """The lines found in the content of a file, how many match, and whether it is binary."""

    lines: list[tuple[int, str, bool]]
    """Matching lines and those around them, as number, text, and True for a line around a match."""
    line_count: int
    """The number of matching lines; for lines it is counted up to the most that are wanted."""
    is_binary: bool
    """True if it has a NUL; then its lines are not returned."""


def find_lines(
    data: bytes, expression: "re.Pattern[str]", context: int, most: int, *, counts_only: bool = False
) -> FoundLines:
    """Return the lines of a file's content that match, with the context lines around them, or only their number."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data = data.decode("utf-16", "replace").encode("utf-8", "surrogatepass")
    is_binary = b"\0" in data
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1]:
        lines.pop()
    found: list[int] = []
    for number, line in enumerate(lines):
        if has_match(line.removesuffix(b"\r"), expression):
            found.append(number)
            if (len(found) >= most and not counts_only) or is_binary:
                break
    if counts_only or is_binary:
        return FoundLines([], len(found), is_binary)
    wanted = found
    if context:
        around = {each for number in found for each in range(number - context, number + context + 1)}
        wanted = sorted(each for each in around if 0 <= each < len(lines))
    matched = set(found)
    shown = [
        (number + 1, lines[number].removesuffix(b"\r").decode("utf-8", "replace"), number not in matched)
        for number in wanted
    ]
    return FoundLines(shown, len(found), is_binary=False)


def has_match(line: bytes, expression: "re.Pattern[str]") -> bool:
    """Return True if a regular expression matches in a line; invalid UTF-8 matches nothing, as in ripgrep."""
    try:
        return expression.search(line.decode()) is not None
    except UnicodeDecodeError:
        text = line.decode("utf-8", "surrogateescape")
    start = 0
    for broken in [*re.finditer("[\ud800-\udfff]", text), None]:
        end = len(text) if broken is None else broken.start()
        if expression.search(text, start, end):
            return True
        start = end if broken is None else broken.end()
    return False


def read_content_batches(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield batches of file contents from a stream: each is a JSON line with the sizes, then the contents."""
    while line := stream.readline():
        yield [stream.read(size) for size in json.loads(line)]


def main() -> None:
    """Search the batches of file contents on standard input until it ends, and write the matches as JSON.

    The first line of the input has the pattern and its options.
    """
    options: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    expression = re.compile(options["pattern"], re.IGNORECASE if options["ignore_case"] else 0)
    for batch in read_content_batches(sys.stdin.buffer):
        found = [
            find_lines(data, expression, options["context"], options["most"], counts_only=options["counts_only"])
            for data in batch
        ]
        sys.stdout.buffer.write(json.dumps(found).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
