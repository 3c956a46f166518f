"""Pages of the documentation that are made from the code, so that they cannot go stale; `conf.py` calls them."""
