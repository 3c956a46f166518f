"""How a run stands, and why it does not go on."""
