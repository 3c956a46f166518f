"""The tuners that are compared, each behind the face of `face.py`, in a process and an environment of its own."""
