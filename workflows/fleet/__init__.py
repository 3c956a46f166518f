"""A fleet of EC2 instances, started from the baked AMI, that joins an HTCondor pool.

There is no state file: what belongs to a fleet is found by its tag, which everything gets when it is created.
"""
