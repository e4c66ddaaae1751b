"""`perdure completion`: scripts for three shells, installed where each looks for them."""

import json

import pytest

PLACES = {
    "bash": ".local/share/bash-completion/completions/perdure",
    "zsh": ".zfunc/_perdure",
    "fish": ".config/fish/completions/perdure.fish",
}


@pytest.fixture(autouse=True)
def no_folders(monkeypatch):
    """No variable names another folder."""
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("shell", PLACES)
def test_a_script_is_installed_where_the_shell_looks_for_it(perdure, person, monkeypatch, shell):
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    assert perdure("completion", "install").exit_code == 0
    assert "_PERDURE_COMPLETE" in (person / PLACES[shell]).read_text()
    again = json.loads(perdure("completion", "install", shell, "--json").stdout)
    assert again == {"shell": shell, "path": str(person / PLACES[shell])}
    assert perdure("completion", "show", shell).stdout == (person / PLACES[shell]).read_text()


def test_the_command_answers_the_script(shell):
    environment = {
        **shell.environment,
        "_PERDURE_COMPLETE": "bash_complete",
        "COMP_WORDS": "perdure ru",
        "COMP_CWORD": "1",
    }
    assert shell.run(environment=environment).stdout == "plain,run\n"


def test_another_shell_has_to_be_named(perdure, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    result = perdure("completion", "install")
    assert (result.exit_code, result.stderr) == (
        2, "error: the variable SHELL names 'tcsh'; name one of bash, zsh, fish\n",
    )  # fmt: skip


def test_a_place_that_cannot_be_written_is_an_error_that_says_what_to_do(perdure, person):
    person.write_text("a file")
    result = perdure("completion", "install", "bash")
    path = str(person / PLACES["bash"])
    assert (result.exit_code, result.stdout, result.stderr) == (
        2, "", f"error: {path!r} cannot be written: Not a directory; see perdure completion show\n",
    )  # fmt: skip


@pytest.mark.parametrize("shell", PLACES)
def test_what_is_left_to_do_after_the_installation_is_said(perdure, person, shell):
    result = perdure("completion", "install", shell)
    folder = person / ".zfunc"
    advice = f"if it is not there yet, add to .zshrc: fpath+=({folder}); autoload -Uz compinit && compinit\n"
    assert result.stdout == f"{person / PLACES[shell]}\n"
    assert result.stderr == f"{advice if shell == 'zsh' else ''}it works in the next shell\n"
    again = perdure("completion", "install", shell, "--json")
    assert again.stderr == ""
