"""The history file of the chat: private, bounded, and never a reason to fail."""

import pytest

pytestmark = pytest.mark.packages("prompt_toolkit")


@pytest.fixture
def open_history():
    from perdure._cli.chat.completion import open_input_history

    return open_input_history


def test_it_is_for_its_owner_alone(open_history, tmp_path):
    path = tmp_path / "home" / "history"
    open_history(str(path)).store_string("two\nlines")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    assert list(open_history(str(path)).load_history_strings()) == ["two\nlines"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_older_half_of_a_long_one_is_dropped(open_history, tmp_path, monkeypatch):
    monkeypatch.setattr("perdure._cli.chat.completion.MAX_BYTES", 1000)
    path = tmp_path / "history"
    history = open_history(str(path))
    for number in range(100):
        history.store_string(f"prompt {number}")
    kept = list(open_history(str(path)).load_history_strings())
    assert kept[0] == "prompt 99"
    assert 30 < len(kept) < 70


def test_a_link_or_a_folder_in_its_place_is_not_followed(open_history, tmp_path):
    (tmp_path / "target").write_text("")
    (tmp_path / "history").symlink_to(tmp_path / "target")
    open_history(str(tmp_path / "history")).store_string("secret")
    assert (tmp_path / "target").read_text() == ""
