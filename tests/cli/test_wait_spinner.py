"""The spinner of `perdure run`: it names what is waited for, and leaves nothing behind."""

from tests.cli.process import STAND_INS


def test_it_names_the_model_and_is_cleared(shell):
    with shell.terminal("run", "--model", "odd:silent", "go", program=STAND_INS, size=(80, 24)) as terminal:
        terminal.await_text("waiting for the model")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "\r\x1b[K" in terminal.seen
    assert terminal.seen.rindex("\r\x1b[K") > terminal.seen.rindex("waiting for the model")


def test_without_a_terminal_there_is_none(shell):
    assert "waiting" not in shell.run("run", "Calculate 6 * 7").stderr
