"""Skills: instructions for one kind of work, which the model loads when it needs them.

`skill` defines the value, `loading` and `discovery` find skills on disk, `trust` records which ones of a project may be
used, `collection` has them by name, and `tools` are the model's access.
"""

from .loading import load_skills, load_skills_from
from .skill import Resource, Skill, Skills, format_skill_body, resolve_skill_prompt
from .tools import skill_tools
from .trust import Trust

__all__ = [
    "Resource",
    "Skill",
    "Skills",
    "Trust",
    "format_skill_body",
    "load_skills",
    "load_skills_from",
    "resolve_skill_prompt",
    "skill_tools",
]
