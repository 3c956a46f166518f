"""Questions that wait for the same champion with the same wishes are answered together, each by its own answer."""

import asyncio
import threading
from dataclasses import dataclass, field

import pytest

from regiondag.serve import desk as desk_module
from regiondag.serve.desk import MOST_REASONED, MOST_TOGETHER, Desk, Question
from regiondag.serve.messages import Wishes


@dataclass(eq=False)
class Asked:
    """Stands for a champion: notes what it was asked, and waits for `gate`."""

    calls: list = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    def answer(question, customers):
        question.serving.calls.append(list(customers))
        assert question.serving.gate.wait(30)
        if question.serving.error:
            raise question.serving.error
        return [(customer, question.wishes.k) for customer in customers]

    monkeypatch.setattr(desk_module, "_answer", answer)


def question(serving, k=10, because=0):
    return Question(serving, Wishes(k=k, because=because))


async def started(desk, *asked):
    tasks = [asyncio.create_task(desk.ask(one, names)) for one, names in asked]
    await asyncio.sleep(0.05)
    return tasks


def test_what_waits_goes_together_and_each_gets_his_own():
    async def run():
        serving, desk = Asked(), Desk()
        tasks = await started(desk, (question(serving), ["a"]))
        tasks += await started(desk, *((question(serving), [name]) for name in "bcd"), (question(serving, 3), ["e"]))
        serving.gate.set()
        return serving.calls, [await task for task in tasks]

    calls, answers = asyncio.run(run())
    assert calls == [["a"], ["b", "c", "d"], ["e"]]
    assert answers == [[("a", 10)], [("b", 10)], [("c", 10)], [("d", 10)], [("e", 3)]]


def test_many_customers_let_others_have_their_turn():
    async def run():
        many, few, desk = Asked(), Asked(), Desk()
        names = [str(n) for n in range(3 * MOST_TOGETHER + 1)]
        tasks = await started(desk, (question(many), names), (question(few), ["x"]))
        many.gate.set()
        few.gate.set()
        answers = [await task for task in tasks]
        return names, [len(call) for call in many.calls], answers

    names, sizes, answers = asyncio.run(run())
    assert sizes == [MOST_TOGETHER] * 3 + [1]
    assert answers == [[(name, 10) for name in names], [("x", 10)]]


def test_questions_with_reasons_are_longer_and_go_in_smaller_parts():
    async def run():
        serving, desk = Asked(), Desk()
        serving.gate.set()
        await desk.ask(question(serving, because=1), [str(n) for n in range(2 * MOST_REASONED + 1)])
        return [len(call) for call in serving.calls]

    assert asyncio.run(run()) == [MOST_REASONED, MOST_REASONED, 1]


def test_an_error_is_of_those_who_asked_together_alone():
    async def run():
        bad, good, desk = Asked(error=ValueError("no")), Asked(), Desk()
        tasks = await started(desk, (question(bad), ["a"]), (question(bad), ["b"]), (question(good), ["c"]))
        bad.gate.set()
        good.gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(run())
    assert [str(one) for one in found[:2]] == ["no", "no"] and found[2] == [("c", 10)]


def test_who_has_gone_is_not_answered():
    async def run():
        serving, desk = Asked(), Desk()
        [first] = await started(desk, (question(serving), ["a"]))
        gone, stays = await started(desk, (question(serving), ["b"]), (question(serving), ["c"]))
        first.cancel()
        gone.cancel()
        await asyncio.sleep(0)
        serving.gate.set()
        return serving.calls, await stays, await desk.ask(question(serving), ["d"])

    assert asyncio.run(run()) == ([["a"], ["c"], ["d"]], [("c", 10)], [("d", 10)])
