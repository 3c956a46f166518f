"""What DAGMan's scripts and reports go by, whoever trains a region's trials: facts that each trainer has. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from nnlib.contract import MODEL_OUTPUTS, PROGRAM_OUTPUTS, Outputs
from regiondag.study.families import NETWORK, PROGRAM


@dataclass(frozen=True, slots=True)
class Kind:
    """What is known of all that one trainer makes."""

    name: str  # what recipes and reports call it
    outputs: Outputs  # what its jobs bring back
    by_customers: bool  # its metrics are means over customers, so that recipes of nnlib's can be compared with it


NETWORKS = Kind(NETWORK, MODEL_OUTPUTS, by_customers=True)
PROGRAMS = Kind(PROGRAM, PROGRAM_OUTPUTS, by_customers=False)
