"""Render the settings of an embedded pool and of the programs outside that look at it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

# condor_gpu_discovery's table: 2 is a V100 with 16 GB and capability 7.0.
SIMULATED_GPU_TYPE = 2

SIMULATE_GPUS = """
# No GPU here: HTCondor's own discovery makes some up, and every listing says so.
use FEATURE : GPUs
GPU_DISCOVERY_EXTRA = $(GPU_DISCOVERY_EXTRA) -simulate:{kind},{count}
SimulatedGPUs = True
STARTD_ATTRS = $(STARTD_ATTRS) SimulatedGPUs
# Jobs that asked for a GPU find none here; this lets them train on the processors instead of leaving with 75.
STARTER_JOB_ENVIRONMENT = "NNLIB_SIMULATED_GPUS=1"
"""

NO_GPUS = """
STARTD_DETECT_GPUS =
"""

# True on slots to which discovery gave a GPU, simulated or real; never a constant.
HAS_GPU = """
HAS_GPU = (TotalSlotGPUs ?: 0) > 0
STARTD_ATTRS = $(STARTD_ATTRS) HAS_GPU
"""


def render_pool_config(base: str, port: int, simulated_gpus: int, extra: Sequence[tuple[str, str]]) -> str:
    """Return condor_config.local: the settings all pools share, this pool's values, then the user's files."""
    parts = [base, f"\nCOLLECTOR_HOST = 127.0.0.1:{port}\nCOLLECTOR_PORT = {port}\n"]
    parts.append(SIMULATE_GPUS.format(kind=SIMULATED_GPU_TYPE, count=simulated_gpus) if simulated_gpus else NO_GPUS)
    parts.append(HAS_GPU)
    parts += [f"\n# --config {name}\n{text.rstrip()}\n" for name, text in extra]
    return "".join(parts)


def render_client_config(port: int, spool: str) -> str:
    """Return the settings with which programs outside may look at the pool, but not change it."""
    return f"""# For CONDOR_CONFIG of programs outside the pool, for instance the Python bindings: queries only.
CONDOR_HOST = 127.0.0.1
COLLECTOR_HOST = 127.0.0.1:{port}
SPOOL = {spool}
NETWORK_INTERFACE = 127.0.0.1
NETWORK_HOSTNAME = localhost
NO_DNS = True
DEFAULT_DOMAIN_NAME = local
ENABLE_IPV6 = False
USE_SHARED_PORT = False
SEC_CLIENT_AUTHENTICATION = OPTIONAL
SEC_CLIENT_ENCRYPTION = OPTIONAL
SEC_CLIENT_INTEGRITY = OPTIONAL
"""
