"""What jobs of networks and of recipes have in common: the file that they measure on, and the libraries they use."""

from __future__ import annotations

import numpy as np
import scipy

from nnlib.contract import Role, Trial
from nnlib.errors import NnlibError
from nnlib.util import netcdf
from nnlib.util.blas import find_kernels

LIBRARIES = {"numpy": np.__version__, "scipy": scipy.__version__, "netCDF4": netcdf.VERSION}  # every job's
LIBRARIES |= find_kernels()


def held_out_file(trial: Trial) -> str:
    """Return the name of the validation file of a trial, of the test file of a final job; NnlibError without one."""
    tune = trial.role is Role.TUNE
    name = trial.valid_file if tune else trial.test_file
    if name is None:
        key = "valid_file" if tune else "test_file"
        raise NnlibError(f"trial.json: {key}: null is not legal for role {trial.role}, legal: a data file")
    return name
