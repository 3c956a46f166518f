"""Each class is held out by its share, by chance from the seed, wherever it is listed."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nnlib.importing.images.listing import Picture
from nnlib.importing.images.parts import Shares, divide


def made(counts, region="R"):
    return [
        Picture(f"{region}/{label}/{n}.png", region, label) for label, count in counts.items() for n in range(count)
    ]


def counted(pictures):
    return Counter((picture.label, picture.part) for picture in pictures)


def test_shares_of_each_class():
    found = counted(divide(made({"a": 100, "b": 50}), Shares(0.1, 0.3)))
    assert found == {
        ("a", "train"): 60,
        ("a", "valid"): 30,
        ("a", "test"): 10,
        ("b", "train"): 30,
        ("b", "valid"): 15,
        ("b", "test"): 5,
    }


def test_small_classes_together_have_their_share():
    found = divide(made({f"c{n:03}": 3 for n in range(100)}), Shares(0.2, 0.2))
    parts = Counter(picture.part for picture in found)
    assert parts == {"train": 180, "valid": 60, "test": 60}
    assert {label for label, part in counted(found) if part == "train"} == {f"c{n:03}" for n in range(100)}


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.floats(0, 0.5), st.floats(0, 0.49), st.integers(0, 9))
def test_nothing_is_lost_and_every_class_is_learned(counts, test, valid, seed):
    pictures = made({f"c{n}": count for n, count in enumerate(counts)})
    found = divide(pictures, Shares(test, valid, seed))
    assert sorted(replace(picture, part="").name for picture in found) == sorted(picture.name for picture in pictures)
    assert {picture.label for picture in found if picture.part == "train"} == {picture.label for picture in pictures}
    assert found == divide(pictures[::-1], Shares(test, valid, seed))


def test_new_pictures_leave_the_order_of_others():
    before = [picture.name for picture in divide(made({"a": 20}), Shares())]
    after = [picture.name for picture in divide(made({"a": 25}), Shares())]
    assert [name for name in after if name in before] == before
    assert before != [picture.name for picture in divide(made({"a": 20}), Shares(seed=1))]


def test_parts_that_a_table_says_stay():
    pictures = [replace(picture, part="test") for picture in made({"a": 3})]
    assert {picture.part for picture in divide(pictures, Shares())} == {"test"}
