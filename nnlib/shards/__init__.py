"""One training cut into eight shards: which sums there are, in which order, and who has what. Not who computes."""
