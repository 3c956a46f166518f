"""The registry of champions: what served each region, and what serves it now."""
