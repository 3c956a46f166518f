"""regiondag: one tuned, trained and tested model per region, as an ordinary HTCondor DAG."""

__version__ = "0.1.0"
