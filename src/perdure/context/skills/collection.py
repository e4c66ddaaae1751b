"""All skills of an agent, by name. Above: the assembly, `tools.py`. Below: `skill.py`, `catalogue.py`."""

from collections.abc import Iterable, Iterator

from perdure.core import check
from perdure.core.error import ConfigError

from .catalogue import catalogue_of
from .skill import Skill


class Skills:
    """Skills by name: those described in code, or found on the disk by `load_skills`. A name is there once.

    Two collections are joined with `+`; of two skills with one name, that of the first counts.
    """

    __slots__ = ("_skills", "problems", "untrusted")

    def __init__(
        self, skills: Iterable[Skill] = (), *, untrusted: Iterable[Skill] = (), problems: Iterable[str] = ()
    ) -> None:
        self._skills: dict[str, Skill] = {}
        self.untrusted = tuple(untrusted)
        """Skills of the project that nobody has agreed to yet. Neither the model nor `/name` can use them."""
        self.problems = tuple(problems)
        """What is wrong with skills that were found, a message for each of them."""
        if isinstance(skills, str) or not isinstance(skills, Iterable):
            check.refuse("Skills", "skills", skills, "give a list of skills")
        for each in skills:
            if not isinstance(each, Skill):
                check.refuse("Skills", "skills", each, "give Skill(name=…, description=…, body=…)")
            if each.name in self._skills:
                raise ConfigError(f"two skills are called {each.name!r}: give one of them another name")
            self._skills[each.name] = each

    @property
    def names(self) -> tuple[str, ...]:
        """What there is, hidden ones included, in the order of the alphabet."""
        return tuple(sorted(self._skills))

    def get(self, name: str) -> Skill:
        """The skill of that name; an unknown one is an error that lists what there is."""
        if (skill := self._skills.get(name)) is not None:
            return skill
        if any(each.name == name for each in self.untrusted):
            raise ConfigError(
                f"skill {name!r} is of the project, and not trusted yet: a person has to agree to it first"
            )
        known = ", ".join(each.name for each in self if not each.hidden) or "none"
        raise ConfigError(f"there is no skill {name!r}; available: {known}")

    def catalogue(self, budget_tokens: int = 2000) -> str:
        """The skills that are not hidden, for the instructions, in about as many tokens at most."""
        check.whole_number("catalogue", "budget_tokens", budget_tokens)
        return catalogue_of(self, budget_tokens)

    def __add__(self, other: "Skills") -> "Skills":
        if not isinstance(other, Skills):
            return NotImplemented
        added = [each for each in other if each.name not in self._skills]
        clashes = [f"two skills are called {each.name!r}: {told(self.get(each.name))} is used, {told(each)} is not"
                   for each in other if each.name in self._skills]  # fmt: skip
        return Skills(
            [*self, *added],
            untrusted=(*self.untrusted, *other.untrusted),
            problems=(*self.problems, *other.problems, *clashes),
        )

    def __iter__(self) -> Iterator[Skill]:
        """In the order of the alphabet."""
        return iter([self._skills[name] for name in self.names])

    def __len__(self) -> int:
        return len(self._skills)

    def __contains__(self, name: object) -> bool:
        return name in self._skills

    def __repr__(self) -> str:
        return f"Skills({', '.join(self.names)})"


def told(skill: Skill) -> str:
    """Which one it is, where there are several."""
    return repr(skill.path) if skill.path else "the one from code"
