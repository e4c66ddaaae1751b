"""The skills of an agent, accessible by name."""

from collections.abc import Iterable, Iterator

from perdure.core import argument_checks
from perdure.core.error import ConfigError

from .catalogue_text import format_catalogue
from .skill import Skill


class Skills:
    """The skills of an agent, by their unique names; they are defined in code, or loaded from disk by `load_skills`.

    Two collections are joined with `+`; of two skills with the same name, the first is used.
    """

    __slots__ = ("_skills", "problems", "untrusted")

    def __init__(
        self, skills: Iterable[Skill] = (), *, untrusted: Iterable[Skill] = (), problems: Iterable[str] = ()
    ) -> None:
        self._skills: dict[str, Skill] = {}
        self.untrusted = tuple(untrusted)
        """Skills of the project that the user has not trusted yet. Neither the model nor `/name` can use them."""
        self.problems = tuple(problems)
        """Problems of the skills that were found, a message each."""
        if isinstance(skills, str) or not isinstance(skills, Iterable):
            argument_checks.raise_config_error("Skills", "skills", skills, "give a list of skills")
        for each in skills:
            if not isinstance(each, Skill):
                argument_checks.raise_config_error(
                    "Skills", "skills", each, "give Skill(name=…, description=…, body=…)"
                )
            if each.name in self._skills:
                raise ConfigError(f"two skills are called {each.name!r}: give one of them another name")
            self._skills[each.name] = each

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all skills, hidden ones included, sorted."""
        return tuple(sorted(self._skills))

    def get(self, name: str) -> Skill:
        """Return the skill with this name. Raise `ConfigError`, which lists the known skills, if there is none."""
        if (skill := self._skills.get(name)) is not None:
            return skill
        if any(each.name == name for each in self.untrusted):
            raise ConfigError(
                f"skill {name!r} belongs to the project and is not trusted yet: the user has to trust it first"
            )
        raise ConfigError(describe_missing_skill(self, name))

    def catalogue(self, budget_tokens: int = 2000) -> str:
        """Return the list of skills for the model's instructions, without hidden ones, in about `budget_tokens` tokens
        at most.
        """
        argument_checks.require_int("catalogue", "budget_tokens", budget_tokens)
        return format_catalogue(self, budget_tokens)

    def __add__(self, other: "Skills") -> "Skills":
        if not isinstance(other, Skills):
            return NotImplemented
        added = [each for each in other if each.name not in self._skills]
        clashes = [
            f"two skills are called {each.name!r}: {describe_origin(self.get(each.name))} is used, "
            f"{describe_origin(each)} is not"
            for each in other
            if each.name in self._skills
        ]
        return Skills(
            [*self, *added],
            untrusted=(*self.untrusted, *other.untrusted),
            problems=(*self.problems, *other.problems, *clashes),
        )

    def __iter__(self) -> Iterator[Skill]:
        """Iterate over the skills, sorted by name."""
        return iter([self._skills[name] for name in self.names])

    def __len__(self) -> int:
        return len(self._skills)

    def __contains__(self, name: object) -> bool:
        return name in self._skills

    def __repr__(self) -> str:
        return f"Skills({', '.join(self.names)})"


def describe_missing_skill(skills: Skills, name: str) -> str:
    """Return the error message for an unknown skill name, with the names of the skills that are not hidden."""
    known = ", ".join(each.name for each in skills if not each.hidden) or "none"
    return f"there is no skill {name!r}; available: {known}"


def describe_origin(skill: Skill) -> str:
    """Return where a skill was loaded from, to distinguish it from another of the same name."""
    return repr(skill.path) if skill.path else "the one from code"
