"""Time, money, and requests of the right size."""
