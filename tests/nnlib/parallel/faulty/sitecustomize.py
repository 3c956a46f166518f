"""Python imports this as it starts: FAULT is `what:rank:step`, which befalls that rank of a training in that step."""

import os
import sys
import time

MODULE = "nnlib.parallel.rank"
ARGUMENTS = sys.orig_argv[sys.orig_argv.index(MODULE) + 1 :] if MODULE in sys.orig_argv else []
WHAT, RANK, STEP = (os.environ.get("FAULT", "") or "none:-1:-1").split(":")


def befall() -> None:
    """Do it."""
    import resource
    import signal

    if WHAT in ("SIGKILL", "SIGSTOP", "SIGSEGV"):
        os.kill(os.getpid(), getattr(signal, WHAT))
    elif WHAT == "bug":
        raise ZeroDivisionError("a made-up bug")
    elif WHAT == "memory":
        raise MemoryError("cannot allocate 8 EiB")
    elif WHAT == "limit":
        import numpy as np

        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        np.ones(1 << 30)
    elif WHAT == "disk":
        raise OSError(5, "Input/output error", "train.nc")
    elif WHAT == "hang":
        time.sleep(600)
    elif WHAT == "leave":
        os.kill(int(ARGUMENTS[5]), signal.SIGTERM)  # the job
        time.sleep(0.5)  # in this step


if ARGUMENTS and ARGUMENTS[1] == RANK:
    if WHAT == "library":
        sys.modules["scipy"] = None  # type: ignore[assignment]
    elif WHAT == "start":
        os._exit(3)
    else:
        from nnlib.cpu.by_examples import ExamplesEngine
        from nnlib.cpu.engine import CpuEngine

        plain = {kind: kind.run for kind in (CpuEngine, ExamplesEngine)}

        def run(self, batch):
            """Run a batch, or not."""
            if self.step + 1 == int(STEP):
                befall()
            plain[type(self)](self, batch)

        for kind in plain:
            kind.run = run
