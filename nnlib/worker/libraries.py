"""Versions of the libraries that every job computes with."""

from __future__ import annotations

import numpy as np
import scipy

from nnlib.util import netcdf

LIBRARIES = {"numpy": np.__version__, "scipy": scipy.__version__, "netCDF4": netcdf.VERSION}
