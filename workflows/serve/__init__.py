"""The HTTP service: recommendations of all regions' champions."""
