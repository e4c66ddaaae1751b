"""The readers of reference documents find every name, in each of the four formats.

The samples are ours, and written as those documents are; they are read in every checkout, also where the documents are
not.
"""

from tests.docs import names_of_agentlib, names_of_glove, names_of_glue, names_of_open_agent_loops
from tests.docs.reference_names import left_over


def test_prose_is_searched_for_words_that_look_like_names():
    text = (
        "Call openBoat() on the ShipYard, set max_knots or MAX_KNOTS; e.g. a plain Word, GLM-4, some/path_of and x.y."
    )
    assert left_over(text, []) == {"openBoat", "ShipYard", "max_knots", "MAX_KNOTS"}


def test_a_word_that_is_part_of_a_name_is_no_other_name():
    assert left_over("Set maxKnots and minKnots.", ["Boat.maxKnots"]) == {"minKnots"}


def test_a_listing_of_properties_is_read():
    text = """
Boat

What floats.
name
string
required
What it is called.
crew
Record<string, unknown>
sail
'up' | 'down'
required
interface Boat {
  name: string
}

Wind

type Wind = 'calm' | 'storm'

type Sea =
  | 'flat'
  | 'rough'
"""
    assert set(names_of_agentlib.names(text)) == {
        *("Boat", "Boat.name", "Boat.crew", "Boat.sail", 'Boat."up"', 'Boat."down"'),
        *("Wind", 'Wind."calm"', 'Wind."storm"', 'Sea."flat"', 'Sea."rough"'),
    }


def test_names_that_stand_close_to_their_descriptions_are_told_apart():
    text = """
NameDescription
BoatThe one that floats.
openBoatOpen a Boat, see Boat.deck.
InMemoryHarbourRAM-backed harbour.
MAX_KNOTSHow fast at most.
Keel-

In between, nothing isListed here.
"""
    found = set(names_of_open_agent_loops.names(text))
    assert {"Boat", "openBoat", "Boat.deck", "InMemoryHarbour", "MAX_KNOTS", "Keel"} <= found
    assert not {"In", "isListed", "BoatThe"} & found
    assert "isListed" not in left_over(names_of_open_agent_loops.prose(text), found)


def test_godoc_is_read():
    text = """
- type Boat
- func WithSail(sail string) Option
- func (b *Boat) Turn(degrees int)
const ( SailUp = loop.SailUp SailDown = loop.SailDown )
const ( SailUp Sail = "up" SailDown Sail = "down" )
const ( Never Scope = iota Always )
const MaxKnots = 30
var ErrAground = errors.New("aground")
func NewBoat ¶
func (*Boat) Anchor ¶
type Boat struct {
// Name is what it is called.
Name string `json:"boat_name"`
Rope
Knots func(int) int
}
type Crew interface {
Row(ctx context.Context) error
}
The Boat.Length is not shown.
Directories
tools
rope
Package rope has ropes.
"""
    found = set(names_of_glue.names(text))
    assert {"Boat", "WithSail", "Boat.Turn", "NewBoat", "Boat.Anchor", "MaxKnots", "ErrAground"} <= found
    assert {"SailUp", "SailDown", 'Sail."up"', 'Sail."down"', "Never", "Always"} <= found
    assert {"Boat.Name", "Boat.Rope", "Boat.Knots", "Crew.Row", "Boat.Length"} <= found
    assert {"package tools", "package tools/rope"} <= found
    assert left_over(names_of_glue.prose(text), found) == set()


def test_tables_and_interfaces_are_read():
    text = """
| Property | Type | Description |
|---|---|---|
| name? | string | What it is called. |
| sail(to: string) | "up" | "down" | Object form: { rope, knots? }. |
| source.data? | string | Where from. |
"""
    rows = text.splitlines()[3:]
    assert list(names_of_glove.table("Boat", rows)) == [
        *("Boat.name", "Boat.sail", 'Boat."up"', 'Boat."down"', "sail.rope", "sail.knots", "Boat.source.data")
    ]
    assert set(names_of_glove.declarations("interface Boat {\nname: string;\nturn(\nby: number,\n): void;\n}\n")) == {
        *("Boat", "Boat.name", "Boat.turn")
    }
    assert list(names_of_glove.fields_of("rope?: {\nlength: number;\n};\nsail?: { up: boolean };")) == [
        *("rope", "rope.length", "sail", "sail.up")
    ]
