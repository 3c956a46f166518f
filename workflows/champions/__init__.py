"""Which recipe serves each region, by the metric of every customer: pure functions on arrays.

`scores` holds what is compared, `chance` says how sure it is, `choose` decides, `fitted_until` refuses comparisons that
would be unfair, `cautions` says what to doubt.
"""
