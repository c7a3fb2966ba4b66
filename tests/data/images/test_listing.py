from pathlib import Path

import pytest

from dualstudent.data.datasets import Part
from dualstudent.data.images.listing import Listing, sort_naturally
from dualstudent.errors import UserError


def listing(*entries: tuple[int, Part], classes: tuple[str, ...] = ("cat", "dog")) -> Listing:
    return Listing(
        "mine",
        tuple(Path(f"{i}.png") for i in range(len(entries))),
        tuple(label for label, _ in entries),
        tuple(part for _, part in entries),
        classes,
    )


def test_who_is_labeled_unlabeled_and_test() -> None:
    mine = listing((0, "train"), (-1, "train"), (1, "test"), (1, "train"), (0, "test"))
    assert (mine.labeled, mine.unlabeled, mine.test) == ([0, 3], [1], [2, 4])


def test_selecting_keeps_what_belongs_together() -> None:
    mine = listing((0, "train"), (-1, "train"), (1, "test"), (1, "train")).select([3, 0, 2])
    assert mine.paths == (Path("3.png"), Path("0.png"), Path("2.png"))
    assert mine.labels == (1, 0, 1)
    assert mine.parts == ("train", "train", "test")


def test_selecting_a_whole_class_away_is_refused() -> None:
    with pytest.raises(UserError, match="'cat'"):
        listing((0, "train"), (1, "train")).select([0])


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "holds no images"),
        ([(-1, "train")], "no .*label"),
        ([(-1, "train"), (0, "test")], "no .*label"),
        ([(1, "train"), (1, "train")], "'dog'"),
        ([(0, "train"), (1, "train"), (2, "test")], "test .*'bird'"),
        ([(0, "train"), (1, "train"), (-1, "test")], r"test .*2\.png .*no label"),
        ([(0, "train"), (3, "train")], r"1\.png .*label 3; .* 3 classes"),
        ([(0, "train"), (-2, "train")], r"1\.png .*label -2"),
        ([(0, "train"), (1, "val")], "'val'; .*'train' or 'test'"),
    ],
)
def test_listings_unfit_for_training_are_refused(
    entries: list[tuple[int, Part]], message: str
) -> None:
    with pytest.raises(UserError, match=f"^mine: .*{message}"):
        listing(*entries, classes=("cat", "dog", "bird"))


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(UserError, match="1 files, 2 labels and 1 parts"):
        Listing("mine", (Path("a"),), (0, 1), ("train",), ("cat", "dog"))


def test_natural_order() -> None:
    names = ["b", "a10", "a9", "A1", "a01", "a", "10", "9", "9" * 5000, "a9b2", "a9b10", "ä"]
    expected = ["9", "10", "9" * 5000, "a", "A1", "a01", "a9", "a9b2", "a9b10", "a10", "b", "ä"]
    assert sort_naturally(names) == expected
    assert sort_naturally(reversed(names)) == expected
