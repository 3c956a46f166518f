"""Bake the GPU worker's disk image, boot it to see it work, and register it as an AMI."""
