"""A fleet of EC2 instances, started from the baked AMI, that joins an HTCondor pool."""
