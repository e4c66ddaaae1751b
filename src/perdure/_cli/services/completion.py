"""`perdure completion`: print or install the completion of commands and options for bash, zsh and fish."""

# ruff: noqa: PTH103, PTH111, PTH118, PTH119, PTH120, PTH123 - pathlib would cost every start milliseconds
import os
from typing import Final

import click

from perdure._cli.terminal.output import TerminalOutput, to_ascii_json
from perdure._core.values.error import ConfigError

_VARIABLE: Final = "_PERDURE_COMPLETE"
_PATHS: Final = {
    "bash": ("XDG_DATA_HOME", "~/.local/share", "bash-completion/completions/perdure"),
    "zsh": ("ZDOTDIR", "~", ".zfunc/_perdure"),
    "fish": ("XDG_CONFIG_HOME", "~/.config", "fish/completions/perdure.fish"),
}
"""Where each shell looks for completions: the variable that names the folder, the folder without it, and the file."""
_shell_argument = click.argument("shell", required=False, type=click.Choice([*_PATHS]))


@click.group()
def completion() -> None:
    """Print or install the completion of commands and options for bash, zsh and fish."""


@completion.command()
@_shell_argument
def show(shell: str | None) -> None:
    """Print the completion script for SHELL, by default the one in the variable SHELL."""
    TerminalOutput(raw=True).write(build_completion_script(shell or find_shell()) + "\n")


@completion.command()
@_shell_argument
@click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")
def install(shell: str | None, *, as_json: bool) -> None:
    """Install the completion for SHELL, by default the one in the variable SHELL. It works in the next shell."""
    import msgspec

    shell = shell or find_shell()
    path = get_completion_path(shell)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(build_completion_script(shell) + "\n")
    except OSError as error:
        raise ConfigError(f"{path!r} cannot be written: {error.strerror}; see perdure completion show") from error
    screen = TerminalOutput()
    if as_json:
        screen.write(to_ascii_json(msgspec.json.encode({"shell": shell, "path": path})) + "\n")
        return
    screen.write(f"{path}\n")
    if shell == "zsh":
        folder = os.path.dirname(path)
        screen.note(f"if it is not there yet, add to .zshrc: fpath+=({folder}); autoload -Uz compinit && compinit")
    screen.note("it works in the next shell")


def find_shell() -> str:
    """Return the name of the user's shell, from the variable SHELL. Raises `ConfigError` if it is not supported."""
    name = os.path.basename(os.environ.get("SHELL", ""))
    if name not in _PATHS:
        raise ConfigError(f"the variable SHELL names {name!r}; name one of {', '.join(_PATHS)}")
    return name


def get_completion_path(shell: str) -> str:
    """Return the path of the file in which a shell looks for the completion of `perdure`."""
    variable, usual, path = _PATHS[shell]
    return os.path.join(os.path.expanduser(os.environ.get(variable) or usual), path)


def build_completion_script(shell: str) -> str:
    """Return the script that makes a shell ask `perdure` for completions."""
    from click.shell_completion import ShellComplete, get_completion_class

    program = click.get_current_context().find_root().command
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101 - click has these three
    return ShellComplete.source(found(program, {}, "perdure", _VARIABLE)).strip()  # without looking at a version
