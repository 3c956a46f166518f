"""The shards that a GPU has of a network that is cut, and what it does together with those that have the others."""
