"""A profile in a file is found by its address and its model, and a broken file is named."""

import stat
import zlib
from pathlib import Path

import pytest

from perdure import ConfigError
from perdure._models.catalogue.saved_profiles import (
    SavedProfile,
    get_profiles_folder,
    load_profile,
    normalize_url,
    save_profile,
)

LEARNED = SavedProfile(
    base_url="http://host:8000/v1",
    model="Qwen/Qwen3",
    wire="openai_chat",
    profile={"tools": "json", "context_tokens": 4096},
    learned={"tools": "refused"},
)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PERDURE_PROFILES", str(tmp_path / "profiles"))


def test_what_was_kept_is_found_again_however_the_address_is_written():
    path = save_profile(LEARNED)
    assert Path(path).name.startswith("host-8000-v1-Qwen-Qwen3-")
    assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700
    assert load_profile("HTTP://Host:8000/v1/", "Qwen/Qwen3") == LEARNED


def test_another_model_or_another_address_has_no_profile():
    save_profile(LEARNED)
    assert load_profile("http://host:8000/v1", "Qwen/Qwen2") is None
    assert load_profile("http://host:8001/v1", "Qwen/Qwen3") is None


def test_a_newer_profile_takes_the_place_of_an_older_one():
    first = save_profile(LEARNED)
    newer = SavedProfile(base_url=LEARNED.base_url, model=LEARNED.model, profile={"tools": "native"})
    assert save_profile(newer) == first
    assert load_profile(LEARNED.base_url, LEARNED.model) == newer
    assert len(list(Path(get_profiles_folder()).iterdir())) == 1


def test_a_file_may_be_written_by_hand_under_any_name():
    Path(get_profiles_folder()).mkdir()
    Path(get_profiles_folder(), "mine.json").write_text(
        '{"base_url": "http://h/v1", "model": "m", "profile": {"images": true}}'
    )
    Path(get_profiles_folder(), "notes.txt").write_text("no profile")
    kept = load_profile("http://h/v1", "m")
    assert kept is not None
    assert kept.profile == {"images": True}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is invalid"),
        ('{"base_url": "http://h/v1"}', "missing required field `model`"),
        ('{"base_url": "http://h/v1", "model": "m", "profile": {"tools": "perhaps"}}', "Invalid enum value 'perhaps'"),
        (
            '{"base_url": "http://h/v1", "model": "m", "profile": {"tolls": "json"}}',
            "has the unknown field 'tolls'",
        ),
    ],
)
def test_a_broken_file_is_named_with_what_to_do(text, complaint):
    Path(get_profiles_folder()).mkdir()
    Path(get_profiles_folder(), "broken.json").write_text(text)
    with pytest.raises(ConfigError, match=complaint) as caught:
        load_profile("http://h/v1", "m")
    assert "broken.json" in str(caught.value)
    assert "run `perdure probe` again, or delete the file" in str(caught.value)


def test_the_folder_lies_with_other_settings(monkeypatch):
    monkeypatch.delenv("PERDURE_PROFILES")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/settings")
    assert get_profiles_folder() == "/settings/perdure/profiles"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/elsewhere")
    assert get_profiles_folder() == "/elsewhere/.config/perdure/profiles"


def test_addresses_are_compared_without_regard_to_case_of_the_host_or_a_last_slash():
    assert normalize_url("HTTPS://Host.Example/V1/") == "https://host.example/V1"


def test_a_file_that_cannot_be_read_is_named_with_the_reason():
    folder = Path(get_profiles_folder(), "folder.json")
    folder.mkdir(parents=True)
    with pytest.raises(ConfigError) as caught:
        load_profile("http://h/v1", "m")
    assert str(caught.value) == (
        f"the profile {str(folder)!r} cannot be read: Is a directory; run `perdure probe` again, or delete the file"
    )


def test_the_file_of_a_profile_is_named_by_its_address_and_model():
    name = Path(save_profile(LEARNED)).name
    assert name == "host-8000-v1-Qwen-Qwen3-" + f"{zlib.crc32(b'host:8000/v1 Qwen/Qwen3'):08x}.json"
    long = SavedProfile(base_url="http://host/v1", model="m" * 100)
    assert len(Path(save_profile(long)).name) == 80 + len("-12345678.json")
    assert load_profile("http://host/v1", "m" * 100) == long
    assert Path(get_profiles_folder(), name).read_bytes().startswith(b'{\n  "base_url": "http://host:8000/v1",\n')


@pytest.mark.parametrize(
    ("url", "normal"),
    [("HTTP://A.B", "http://a.b"), ("http://A/X//", "http://a/X"), ("A/B", "a/b"), ("", "")],
)
def test_an_address_has_one_form(url, normal):
    assert normalize_url(url) == normal
