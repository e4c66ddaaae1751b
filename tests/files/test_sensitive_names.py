"""Names of files that tend to hold secrets."""

import pytest

from perdure._io.files import sensitive
from perdure._io.files.sensitive import SENSITIVE_NAMES, BlockedNames, find_blocking_pattern


@pytest.mark.parametrize(
    "path",
    [
        ".env", ".ENV", ".env.local", "deep/.envrc", "prod.env", ".envs/.production/.django", ".git/config",
        "sub/.git/hooks/x", ".ssh/config", "id_rsa", "keys/id_rsa.pub", "id_ed25519", "server.pem", "server.KEY",
        ".aws/credentials", "credentials.json", "Credentials", ".netrc", "_netrc", ".kube/config", "kubeconfig.yaml",
        ".docker/config.json", ".config/gcloud/x", ".npmrc", ".pypirc", "terraform.tfstate", "x.tfvars", "secrets.yaml",
        "secrets/a", ".bash_history", ".env ", ".env.", "\uff0eenv", ".e\u200bnv", ".g\u200cit/config", "\u017fecrets",
    ],
)  # fmt: skip
def test_what_may_hold_a_secret_is_blocked(path):
    assert find_blocking_pattern(path.split("/"), SENSITIVE_NAMES)


@pytest.mark.parametrize(
    "path",
    ["environment.py", "src/credentials/store.py", "git/x", "monkey.py", ".gitignore", "config.json", "env", "..."],
)
def test_anything_else_is_not(path):
    assert find_blocking_pattern(path.split("/"), SENSITIVE_NAMES) == ""


def test_a_pattern_with_slashes_fits_names_in_a_row():
    assert find_blocking_pattern(["a", "b", "c"], ["b/c"]) == "b/c"
    assert find_blocking_pattern(["a", "b", "c"], ["a/b"]) == ""
    assert find_blocking_pattern(["a", "b", "c"], ["a/b/"]) == "a/b/"
    assert find_blocking_pattern(["c"], ["b/c"]) == ""
    assert find_blocking_pattern(["c"], ["c/"]) == ""


def test_a_set_of_patterns_finds_the_same_one_each_time_also_when_it_has_forgotten_names(monkeypatch):
    monkeypatch.setattr(sensitive, "_MOST_KNOWN", 2)
    blocked = BlockedNames(["*.key", "private/"])
    paths = [["a"], ["b"], ["c.key"], ["private"], ["private", "d"], ["e", "F.KEY"], ["a"]]
    for _ in range(2):
        assert [blocked.find(each) for each in paths] == ["", "", "*.key", "", "private/", "*.key", ""]
    assert len(blocked._known) <= 2
    assert [blocked.find(each, is_folder=True) for each in paths[2:4]] == ["", "private/"]
    assert BlockedNames([]).find(["a"]) == ""
