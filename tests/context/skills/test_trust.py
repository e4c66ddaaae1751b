"""Trust in a project's skills: bound to content, kept in a file, and gone when that file is not to be relied on."""

import json
import os
import stat
from pathlib import Path

import pytest

from perdure import ConfigError
from perdure.context import Skill, Trust


@pytest.fixture
def trust(tmp_path):
    return Trust(os.fspath(tmp_path / "data/trusted.json"))


def test_a_skill_of_a_project_is_inert_until_somebody_agrees_to_it(ground, trust):
    ground.skill("rope")
    for skills in (ground.load(), ground.load(trust)):
        assert [each.name for each in skills.untrusted] == ["rope"]
        assert len(skills) == 0
        assert skills.catalogue() == ""
        with pytest.raises(ConfigError, match="not trusted yet"):
            skills.get("rope")
    trust.trust(skills.untrusted[0])
    skills = ground.load(trust)
    assert (skills.names, skills.untrusted) == (("rope",), ())


def test_skills_of_the_user_and_of_code_need_no_trust(ground, trust):
    ground.user_skill("own")
    skill = Skill(name="rope", description="x", body="y")
    assert ground.load(trust).names == ("own",)
    assert trust.is_trusted(skill)
    trust.trust(skill)
    assert not Path(trust.path).exists()


def changed_body(directory):
    (directory / "SKILL.md").write_text("---\nname: rope\ndescription: x\n---\nOther.", encoding="utf-8")


def changed_script(directory):
    (directory / "scripts/run.py").write_text("import os", encoding="utf-8")


def added_file(directory):
    (directory / "notes").write_text("", encoding="utf-8")


def removed_file(directory):
    (directory / "scripts/run.py").unlink()


def renamed_file(directory):
    (directory / "scripts/run.py").rename(directory / "scripts/ran.py")


def link_instead(directory):
    (directory / "scripts/run.py").unlink()
    (directory / "scripts/run.py").symlink_to("../SKILL.md")


@pytest.mark.parametrize(
    "change",
    [changed_body, changed_script, added_file, removed_file, renamed_file, link_instead],
    ids=lambda c: c.__name__,
)
def test_any_change_of_content_asks_again(ground, trust, change):
    directory = ground.skill("rope", scripts__run_py="pass")
    trust.trust(ground.load(trust).untrusted[0])
    assert ground.load(trust).names == ("rope",)
    change(directory)
    (skill,) = ground.load(trust).untrusted
    assert trust.get_status(skill) == "changed"


def test_the_same_content_elsewhere_needs_trust_of_its_own_however_it_was_written(ground, trust):
    ground.skill("rope", scripts__b_py="b", scripts__a_py="a")
    (one,) = ground.load(trust).untrusted
    trust.trust(one)
    elsewhere = ground.outside / "clone"
    ground.skill("rope", below=elsewhere / ".agents/skills", scripts__a_py="a", scripts__b_py="b")
    (other,) = ground.load(trust, elsewhere).untrusted
    assert other.content_hash == one.content_hash
    assert trust.get_status(other) == "new"
    trust.trust(other)
    assert (trust.get_status(one), trust.get_status(other)) == ("trusted", "trusted")
    trust.revoke(other)
    assert (trust.get_status(one), trust.get_status(other)) == ("trusted", "new")


def test_trust_is_taken_back(ground, trust):
    directory = ground.skill("rope")
    trust.trust(ground.load(trust).untrusted[0])
    skill = ground.load(trust).get("rope")
    assert trust.revoke(skill)
    assert not trust.is_trusted(skill)
    assert not trust.revoke(skill)
    trust.trust(skill)
    changed_body(directory)
    (other,) = ground.load(trust).untrusted
    assert trust.revoke(other), "what the directory had before is not trusted either"
    assert not trust.is_trusted(skill)


def test_trust_in_one_leaves_the_others_as_they_are(ground, trust):
    for name in ("one", "two", "three"):
        ground.skill(name)
    one, _, two = ground.load(trust).untrusted
    trust.trust(one)
    trust.trust(two)
    assert ground.load(trust).names == (one.name, two.name)
    trust.revoke(one)
    assert ground.load(trust).names == (two.name,)


def test_its_owner_alone_can_read_the_file(ground, trust):
    ground.skill("rope")
    trust.trust(ground.load(trust).untrusted[0])
    assert stat.S_IMODE(Path(trust.path).stat().st_mode) == 0o600
    assert [each.name for each in Path(trust.path).parent.iterdir()] == ["trusted.json"]
    (entry,) = json.loads(Path(trust.path).read_bytes())["trusted"]
    assert entry["name"] == "rope"


@pytest.mark.parametrize("content", ["\n", "{", "[]", '{"trusted": [{}]}', '{"trusted": "all"}', "\udcff", "x" * 100])
def test_a_file_that_cannot_be_understood_trusts_nothing(ground, trust, content):
    ground.skill("rope")
    trust.trust(ground.load(trust).untrusted[0])
    Path(trust.path).write_text(content, encoding="utf-8", errors="surrogateescape")
    skills = ground.load(trust)
    assert len(skills) == 0
    (problem,) = skills.problems
    assert "cannot be parsed" in problem
    assert trust.problem == problem
    with pytest.raises(ConfigError, match="delete it"):
        trust.trust(skills.untrusted[0])


@pytest.mark.skipif(os.name != "posix", reason="other systems have other permissions")
def test_a_file_that_others_can_write_to_trusts_nothing(ground, trust):
    ground.skill("rope")
    trust.trust(ground.load(trust).untrusted[0])
    Path(trust.path).chmod(0o660)
    skills = ground.load(trust)
    assert len(skills) == 0
    assert "can be changed by others" in skills.problems[0]


def test_a_file_that_cannot_be_read_trusts_nothing(ground, trust):
    Path(trust.path).mkdir(parents=True)
    ground.skill("rope")
    skills = ground.load(trust)
    assert len(skills) == 0
    assert "is no regular file" in skills.problems[0]


def test_a_skill_that_is_too_large_to_be_hashed_cannot_be_trusted(ground, trust, monkeypatch):
    monkeypatch.setattr("perdure._context.skills.files.MAX_TOTAL_BYTES", 1000)
    ground.skill("large", assets__data_md="x" * 1000)
    ground.skill("good")
    skills = ground.load(trust)
    assert [each.name for each in skills.untrusted] == ["good"]
    assert "large" in skills.problems[0]


def test_there_has_to_be_something_to_bind_trust_to(trust):
    with pytest.raises(ConfigError, match="content_hash"):
        trust.trust(Skill(name="rope", description="x", body="y", source="project"))
    with pytest.raises(ConfigError):
        Trust("")


async def test_what_was_trusted_is_read_as_it_was_or_not_at_all(ground, trust):
    directory = ground.skill("rope", references__knots_md="Bowline.")
    trust.trust(ground.load(trust).untrusted[0])
    skill = ground.load(trust).get("rope")
    assert await skill.read("references/knots.md") == "Bowline."
    (directory / "references/knots.md").write_text("Obey.", encoding="utf-8")
    with pytest.raises(ConfigError, match="has changed since its skill was loaded"):
        await skill.read("references/knots.md")


def test_a_link_in_place_of_the_skill_itself_cannot_be_trusted(ground, trust):
    directory = ground.skill("rope")
    (directory / "SKILL.md").rename(directory / "text.md")
    (directory / "SKILL.md").symlink_to("text.md")
    skills = ground.load(trust)
    assert skills.untrusted == ()
    assert "is a link, or was changed while it was read" in skills.problems[0]


def test_a_file_that_goes_while_it_is_hashed_leaves_the_skill_out(ground, trust, monkeypatch):
    ground.skill("rope")

    def gone(_):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "lstat", gone)
    skills = ground.load(trust)
    assert skills.untrusted == ()
    assert "a file of it cannot be read" in skills.problems[0]
