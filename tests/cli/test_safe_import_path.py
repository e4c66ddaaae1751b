"""The working folder on the path of modules."""

import os
import sys

import pytest

from perdure._cli.import_path import remove_working_folder_from_path


@pytest.mark.parametrize(
    ("path", "left"),
    [
        (["", "lib"], ["lib"]),
        (["HERE", "lib", "HERE"], ["lib", "HERE"]),
        (["lib", "", "HERE"], ["lib", "", "HERE"]),
        ([], []),
    ],
)
def test_only_the_entry_that_python_put_first_is_removed(tmp_path, monkeypatch, path, left):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    here = str(tmp_path.resolve())
    monkeypatch.setattr(sys, "path", [here if each == "HERE" else each for each in path])
    remove_working_folder_from_path()
    assert sys.path == [here if each == "HERE" else each for each in left]


def test_a_working_folder_that_is_gone_is_no_problem(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", ["lib"])

    def fail() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(os, "getcwd", fail)
    remove_working_folder_from_path()
    assert sys.path == ["lib"]
