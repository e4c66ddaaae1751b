# Written by `python -m scripts.exports`, from the table in people.py. Not edited by hand.

from ._core.people.inbox import HostEvent as HostEvent
from ._core.tools.slots import Askable as Askable
from ._core.tools.slots import Showable as Showable
from ._core.tools.slots import SlotLifetime as SlotLifetime
from ._core.tools.slots import TextQuestion as TextQuestion
from ._people.kinds import Choice as Choice
from ._people.kinds import Confirm as Confirm
from ._people.kinds import CustomSlot as CustomSlot
from ._people.kinds import Form as Form
from ._people.kinds import Markdown as Markdown
from ._people.kinds import MultiSelect as MultiSelect
from ._people.kinds import Option as Option
from ._people.kinds import Picture as Picture
from ._people.kinds import PlainText as PlainText
from ._people.kinds import Progress as Progress
from ._people.kinds import Table as Table
from ._people.view import SlotView as SlotView
from ._runtime.session.slots import DisplayAdapter as DisplayAdapter

__all__ = [
    "Askable",
    "Choice",
    "Confirm",
    "CustomSlot",
    "DisplayAdapter",
    "Form",
    "HostEvent",
    "Markdown",
    "MultiSelect",
    "Option",
    "Picture",
    "PlainText",
    "Progress",
    "Showable",
    "SlotLifetime",
    "SlotView",
    "Table",
    "TextQuestion",
]
