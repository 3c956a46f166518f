"""What a study's champions recommend: to one customer, to some, or to all as a DAG of its own."""

from regiondag.recommend.region import open_region

__all__ = ["open_region"]
