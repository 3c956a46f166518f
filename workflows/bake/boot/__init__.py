"""The boot test of an image: a worker's life in a virtual machine."""
