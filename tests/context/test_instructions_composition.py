"""All that an agent is told, put together."""

from perdure._context.role import compose_instructions
from perdure.context import Role


def test_the_order_is_base_project_skills_role_tools():
    text = compose_instructions(
        tools=["- read: prefer it to shell."],
        role=Role("mate", "Obey."),
        skills="SKILLS",
        project="PROJECT",
        base="BASE",
    )
    assert text == ("BASE\n\nPROJECT\n\nSKILLS\n\n## Role: mate\n\nObey.\n\n- read: prefer it to shell.")


def test_parts_that_say_nothing_are_left_out():
    assert compose_instructions() == ""
    assert compose_instructions(base="  \n", project="PROJECT\n", tools=["", " "]) == "PROJECT"


def test_what_several_tools_say_is_said_once():
    assert compose_instructions(tools=["a", "b", "a "]) == "a\n\nb"


def test_the_same_parts_give_the_same_text():
    assert compose_instructions(base="a", project="b") == compose_instructions(base="a", project="b")
