"""Load by wrk: customers at random, as fast as connections allow or at a given rate, and what it says at its end."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.common.processes import NotMeasuredError

SCRIPT = """
local customers, pause = {}, tonumber(os.getenv("BENCH_PAUSE") or "0")
function init(args)
  for line in io.lines(args[1]) do customers[#customers + 1] = line end
  math.randomseed(tonumber(args[2]))
end
function request()
  local name = customers[math.random(#customers)]
  return wrk.format("GET", "/v1/regions/bench/customers/" .. name .. "/recommendations?k=10")
end
if pause > 0 then
  -- Milliseconds until the next request of a connection, at random: requests come as from people who know nothing of
  -- each other.
  function delay() return math.floor(0.5 - pause * math.log(1 - math.random())) end
end
function done(summary, latency)
  local bad = summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout
  io.write(string.format('\\n{"rate": %f, "p50": %f, "p99": %f, "requests": %d, "bad": %d}\\n',
    summary.requests / summary.duration * 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    summary.requests, bad))
end
"""


@dataclass(frozen=True)
class Load:
    """What wrk measured: requests a second, milliseconds."""

    rate: float
    p50: float
    p99: float
    requests: int


def ask(url: str, customers: Path, connections: int, seconds: float, pause: float = 0.0, seed: int = 1) -> Load:
    """Ask about customers, a line each, over so many connections, each pausing so many milliseconds in the mean."""
    script = customers.with_suffix(".lua")
    script.write_text(SCRIPT, encoding="utf-8")
    argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--timeout", "10s", "-s", str(script), url]
    argv += ["--", str(customers), str(seed)]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=seconds + 60, check=True, env={"BENCH_PAUSE": str(pause)}
        )
    except FileNotFoundError:
        raise NotMeasuredError("wrk is missing: apt-get install wrk") from None
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise NotMeasuredError(f"wrk failed: {error}") from error
    found = json.loads(done.stdout.strip().splitlines()[-1])
    if found.pop("bad") or not found["requests"]:
        raise NotMeasuredError(f"some of {found['requests']} requests to {url} failed")
    return Load(**found)
