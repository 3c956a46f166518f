"""What a table that nobody has described is: its encoding, separator, dates, and which column means what."""
