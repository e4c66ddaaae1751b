"""Names that the package does not have are refused: the ignores below would be unused, and so refused, otherwise."""

import perdure
from perdure.events import TextDelta

right: list[object] = [perdure.Agent, TextDelta]
wrong: object = perdure.Agnet  # type: ignore[attr-defined] # ty: ignore[missing-attribute] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
