"""Training and asking on the processors of this machine. A module here and one in gpu/ with its name are twins."""
