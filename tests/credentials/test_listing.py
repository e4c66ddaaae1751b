"""Which names a vault can list without asking anybody far away."""

from perdure.credentials import EnvironmentVault, FileVault, MemoryVault, first_of, listed


class Far:
    def resolve(self, name):
        raise AssertionError(name)

    def names(self):
        raise AssertionError("it takes long to ask")


def test_what_is_in_memory_and_in_files_is_listed(tmp_path):
    file = FileVault(tmp_path / "keys.json")
    file.set("one", "a-long-value")
    memory = MemoryVault({"two": "a-long-value"})
    assert (listed(file), listed(memory)) == (["one"], ["two"])
    assert listed(first_of(Far(), memory, file, memory)) == ["two", "one"]


def test_what_is_far_away_or_in_the_environment_is_not(monkeypatch):
    monkeypatch.setenv("SHIP_MODE", "under way")
    assert listed(Far()) == listed(EnvironmentVault("SHIP_")) == []
