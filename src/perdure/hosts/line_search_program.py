"""Program that searches lines of files with Python's regular expressions, in a child process that can be killed.

Some patterns take for ever on some lines, and Python cannot interrupt itself there. So the search runs in a process of
its own: it reads batches of contents from standard input, and writes the lines that match to standard output, as JSON.
It imports nothing of the package, so that it starts quickly.
"""

import json
import re
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO


def find_lines(data: bytes, expression: "re.Pattern[str]", context: int, most: int) -> list[tuple[int, str, bool]]:
    """Return matching lines and the context lines around them, as number, text, and True for a context line."""
    if b"\0" in data or data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return []  # no text, or none in UTF-8
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1]:
        lines.pop()
    found: list[int] = []
    for number, line in enumerate(lines):
        if has_match(line.removesuffix(b"\r"), expression):
            found.append(number)
            if len(found) >= most:
                break
    wanted = found
    if context:
        around = {each for number in found for each in range(number - context, number + context + 1)}
        wanted = sorted(each for each in around if 0 <= each < len(lines))
    matched = set(found)
    return [
        (number + 1, lines[number].removesuffix(b"\r").decode("utf-8", "replace"), number not in matched)
        for number in wanted
    ]


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
        found = [find_lines(data, expression, options["context"], options["most"]) for data in batch]
        sys.stdout.buffer.write(json.dumps(found).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
