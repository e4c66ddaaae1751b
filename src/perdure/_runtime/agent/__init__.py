"""An agent: its options, what is added to it, and how a run is built from them."""
