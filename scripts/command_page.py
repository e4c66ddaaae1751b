"""The page docs/reference/command-line.md: every command with its use, its examples and what `--json` prints."""

from collections.abc import Iterator, Sequence

import click

from perdure._cli.examples import EXAMPLES
from perdure._cli.main import root_command
from scripts.json_outputs import OUTPUTS, WITHOUT_JSON, Fields

FILE = "command-line.md"
TITLE = "Command line"
ABOUT = "Every command, with examples and the fields that it prints with `--json`."

INTRODUCTION = """
`perdure COMMAND --help` has all options of a command. How to use them: [in a project](../how-to/command-line.md),
[chat](../how-to/chat.md).

With `--json`, standard output has nothing but JSON, in ASCII: one object per line. Notes and errors go to standard
error. Times are seconds since 1970. New fields may be added to any object; a field that is here keeps its name and
type. If a command fails, it prints `error: …` and its exit code is not 0; commands that print a verdict, such as
`doctor` and `config check`, print it nevertheless.
"""


def walk_commands(
    command: click.Command = root_command, words: Sequence[str] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that is no group of others, by its words, in the order of the program."""
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from walk_commands(each, [*words, name])
    else:
        yield " ".join(words), command


def build_command_page(note: str) -> str:
    """Return the text of the page."""
    parts = [f"# {TITLE}", note, INTRODUCTION.strip()]
    for words, command in walk_commands():
        parts += [f"## perdure {words}", command.get_short_help_str(limit=300), _format_examples(words)]
        parts += _describe_output(words)
    return "\n\n".join(parts) + "\n"


def _format_examples(words: str) -> str:
    return "\n".join(["```sh", *EXAMPLES[words], "```"])


def _describe_output(words: str) -> Iterator[str]:
    if words in WITHOUT_JSON:
        yield f"Without `--json`. {WITHOUT_JSON[words]}"
        return
    output = OUTPUTS[words]
    yield f"`--json`: {output.rows[0].lower()}{output.rows[1:]}"
    for place, form in enumerate(output.forms):
        if place:
            yield "Or:"
        yield _format_fields(form)
    if output.is_open:
        yield "And further fields."


def _format_fields(form: Fields) -> str:
    lines: list[str] = []
    for name, text in form.items():
        kind, _, meaning = text.partition(".")
        optional = ", in some rows" if name.endswith("?") else ""
        lines.append(f"- `{name.rstrip('?')}` ({kind}{optional}){':' if meaning.strip() else ''}{meaning}".rstrip())
    return "\n".join(lines)
