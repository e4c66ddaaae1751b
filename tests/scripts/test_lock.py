"""scripts/lock.py: what is taken from pip's report."""

from scripts import lock


def test_a_package_has_one_spelling():
    assert lock.canonical("Typing_Extensions") == lock.canonical("typing.extensions") == "typing-extensions"


def test_pins_are_sorted_names_and_versions_below_a_comment():
    lines = lock.render({"b": "2", "a": "1.0"}).splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["a==1.0", "b==2"]


def test_the_oldest_interpreter_resolves_first_and_its_choice_stands(monkeypatch, tmp_path, capsys):
    answers = {"/old": {"a": "1", "backport": "1"}, "/new": {"a": "2", "addition": "1"}}
    monkeypatch.setattr(lock, "CONSTRAINTS", tmp_path / "constraints.txt")
    monkeypatch.setattr(lock, "interpreters", lambda: [("3.11", "/old"), ("3.12", "/new")])
    monkeypatch.setattr(lock, "resolve", lambda python, _wanted, _pins, *_: answers[python])
    assert lock.main() == 0
    assert (tmp_path / "constraints.txt").read_text() == lock.render({"a": "1", "addition": "1", "backport": "1"})
    assert "3 packages pinned" in capsys.readouterr().out


def test_what_is_installed_without_what_it_depends_on_is_resolved_without_it(monkeypatch, tmp_path):
    asked = []

    def resolve(_python, wanted, _pins, *options):
        asked.append((wanted, options))
        return {"weights": "1"} if options else {"a": "1"}

    monkeypatch.setattr(lock, "CONSTRAINTS", tmp_path / "constraints.txt")
    monkeypatch.setattr(lock, "interpreters", lambda: [("3.13", "/new")])
    monkeypatch.setattr(lock, "requirements", lambda _: ["a>=1"])
    monkeypatch.setattr(lock, "bare_requirements", lambda _: ["weights>=1"])
    monkeypatch.setattr(lock, "resolve", resolve)
    assert lock.main() == 0
    assert asked == [(["a>=1"], ()), (["weights>=1"], ("--no-deps",))]
    assert (tmp_path / "constraints.txt").read_text() == lock.render({"a": "1", "weights": "1"})
