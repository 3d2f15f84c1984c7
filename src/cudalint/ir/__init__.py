"""The intermediate representation: types and a structured tree of resolved nodes."""
