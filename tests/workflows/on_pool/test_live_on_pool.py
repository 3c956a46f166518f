"""What running trials say, on a real HTCondor pool: seen while they train, and right after they lost their machine."""

from __future__ import annotations

import time

import pytest

from regiondag.cli import main
from regiondag.condor.access_point import describe_intervals
from regiondag.monitor.live import read_live
from regiondag.run.live import Live
from tests.workflows.on_pool.test_eviction import EPOCHS, TEXT, TRIAL, evict, train_slowly
from tests.workflows.on_pool.test_study import finish, generate, submit, wait

pytestmark = pytest.mark.condor


def test_a_training_is_seen_while_it_runs_and_where_it_goes_on(pool, run_area, capsys):
    run = generate(run_area, capsys, TEXT)
    train_slowly(run)
    submit(run)
    seen: list[Live] = []

    def there(epochs: int):
        def is_there(_status) -> bool:
            seen.extend(live for node, live in read_live(pool, run).items() if node == TRIAL)
            return bool(seen) and seen[-1].epoch >= epochs and seen[-1].seconds_left is not None

        return is_there

    wait(pool, run, there(5), "five epochs, as the queue has them")
    live = seen[-1]
    assert live.epochs == EPOCHS and live.loss is not None and live.value is not None and not live.doing
    assert len(live.curve) == live.epoch and live.curve[-1] == pytest.approx(live.value, 1e-3)
    assert 0 <= live.age(time.time()) < 60
    assert live.seconds_left is not None and 5 < live.seconds_left < 120  # 0.4 s an epoch
    evict(pool, run, TRIAL, live.epoch + 1)
    seen.clear()
    wait(pool, run, there(1), "the epoch at which it goes on")
    assert seen[-1].epoch >= live.epoch
    assert finish(pool, run).exit_code == 0
    assert read_live(pool, run) == {}


def test_this_pool_is_quick(pool):
    assert describe_intervals(pool) == ""


def test_the_doctor_warns_of_jobs_that_may_do_more_than_say_how_far_they_are(pool, run_area, capsys):
    run = generate(run_area, capsys)
    assert main(["doctor", str(run.path)]) == 0
    assert "WantIOProxy" not in capsys.readouterr().out
    submit_file = run.region("germany").submit_files[0]
    submit_file.write_text(f"MY.WantIOProxy = true\n{submit_file.read_text()}")
    assert main(["doctor", str(run.path)]) == 0
    assert "ok   train.sub of germany: caution: WantIOProxy" in capsys.readouterr().out
