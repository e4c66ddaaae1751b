"""Skills: how to do one kind of work, told when it comes up. Above: the assembly. Below: `core`, front matter.

`skill.py` is the value; `loading.py` and `discovery.py` find it on the disk; `trust.py` knows which of a project's may
be used; `collection.py` holds them by name; `tools.py` is how a model reaches them.
"""

from .collection import Skills
from .discovery import load_skills, skills_in
from .skill import Resource, Skill, prompt_of
from .tools import skill_tools
from .trust import Trust

__all__ = ["Resource", "Skill", "Skills", "Trust", "load_skills", "prompt_of", "skill_tools", "skills_in"]
