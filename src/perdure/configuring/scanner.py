"""Going through a text once, from left to right. Above: `json_lines.py`, `toml_lines.py`. Below: `lines.py`."""

import re
from typing import ClassVar, NoReturn

from .lines import Survey, Unscannable


class Scanner:
    """A place in a text, and what was found up to there."""

    between: ClassVar[re.Pattern[str]]
    """What may stand between two values."""
    place: int
    """Where it is."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.survey = Survey(text)

    def closed(self, bracket: str) -> bool:
        """Whether the bracket comes next; it is taken."""
        self.take(self.between)
        if self.place >= len(self.text):
            self.stop()
        if not self.text.startswith(bracket, self.place):
            return False
        self.place += 1
        return True

    def comma(self, bracket: str) -> None:
        """Between two values stands a comma; whether there may be one after the last, the parser says."""
        self.take(self.between)
        if self.text.startswith(",", self.place):
            self.place += 1
        elif not self.text.startswith(bracket, self.place):
            self.stop()

    def take(self, pattern: re.Pattern[str]) -> str:
        """What matches here; it is stepped over."""
        match = pattern.match(self.text, self.place)
        if match is None:
            return ""
        self.place = match.end()
        return match[0] or "\n"  # a line that ends with nothing at all has ended too

    def stop(self) -> NoReturn:
        raise Unscannable(self.survey.line(self.place))
