import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dualstudent.data.datasets import ImageFiles, Images
from dualstudent.data.splits import (
    choose_images,
    choose_labeled,
    choose_share,
    read_manifest,
    write_manifest,
)
from dualstudent.errors import UserError

CLASSES = ("cat", "dog", "owl", "bee")
SIZES = (30, 12, 25, 40)  # as uneven as real data


def animals() -> Images:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat_interleave(torch.tensor(SIZES))
    labels = labels[torch.randperm(len(labels), generator=generator)]
    pixels = torch.randint(256, (len(labels), 1, 2, 2), generator=generator, dtype=torch.uint8)
    return Images("animals", pixels, labels, CLASSES)


ANIMALS = animals()


@given(each=st.integers(1, min(SIZES)), seed=st.integers(0, 2**63 - 1))
def test_the_choice_is_balanced_and_without_repetition(each: int, seed: int) -> None:
    chosen = choose_labeled(ANIMALS, 4 * each, seed)

    assert ANIMALS.labels[chosen].bincount().tolist() == [each] * 4
    assert chosen.tolist() == sorted(set(chosen.tolist()))


def test_the_choice_is_a_function_of_the_seed() -> None:
    def chosen(seed: int) -> tuple[int, ...]:
        return tuple(choose_labeled(ANIMALS, 20, seed).tolist())

    assert chosen(3) == chosen(3)
    assert len({chosen(seed) for seed in range(10)}) == 10


def test_every_sample_has_the_same_chance_within_its_class() -> None:
    chosen = torch.cat([choose_labeled(ANIMALS, 24, seed) for seed in range(1000)])

    frequency = chosen.bincount(minlength=len(ANIMALS)) / 1000

    expected = 6 / torch.tensor(SIZES)[ANIMALS.labels]
    assert (frequency - expected).abs().max() < 0.08  # five standard deviations


@pytest.mark.parametrize("count", [3, 10, 41])
def test_a_count_that_cannot_be_balanced_is_refused(count: int) -> None:
    with pytest.raises(UserError, match=f"data.labels = {count} .* animals; .* multiple of 4"):
        choose_labeled(ANIMALS, count, seed=0)


def test_more_labels_than_a_class_has_are_refused() -> None:
    assert len(choose_labeled(ANIMALS, 48, seed=0)) == 48
    with pytest.raises(UserError, match=r"data\.labels = 52 .*13 .*'dog', .*animals .*12"):
        choose_labeled(ANIMALS, 52, seed=0)


def test_images_are_chosen_like_labels_but_independently_of_them() -> None:
    images, labels = choose_images(ANIMALS, 20, seed=3), choose_labeled(ANIMALS, 20, seed=3)

    assert ANIMALS.labels[images].bincount().tolist() == [5] * 4
    assert not torch.equal(images, labels)
    assert torch.equal(images, choose_images(ANIMALS, 20, seed=3))
    with pytest.raises(UserError, match=r"data\.images = 52 .*13 .*'dog'"):
        choose_images(ANIMALS, 52, seed=0)


@pytest.mark.parametrize(
    ("share", "each"), [("20%", 5), ("15 %", 4), ("37.5%", 10), ("4%", 1), ("3.74%", 1)]
)
def test_a_share_is_rounded_down_to_equally_many_of_each_class(share: str, each: int) -> None:
    chosen = choose_labeled(ANIMALS, share, seed=1)

    assert ANIMALS.labels[chosen].bincount().tolist() == [each] * 4
    assert torch.equal(chosen, choose_labeled(ANIMALS, 4 * each, seed=1))


def test_a_class_too_small_for_its_share_gives_all_it_has() -> None:
    chosen = choose_labeled(ANIMALS, "60%", seed=1)  # 16 of each

    assert ANIMALS.labels[chosen].bincount().tolist() == [16, 12, 16, 16]


def test_a_share_of_less_than_one_label_for_each_class_is_refused() -> None:
    with pytest.raises(UserError, match=r"data\.labels = '3\.7%' .*107 images .* 4 "):
        choose_labeled(ANIMALS, "3.7%", seed=0)


def test_ten_percent_of_imagenet_are_128_of_each_class() -> None:
    sizes = torch.full((1000,), 1300)
    sizes[:104] = 732  # the smallest
    sizes[104:1000] -= (int(sizes.sum()) - 1_281_167) // 896
    sizes[999] += 1_281_167 - int(sizes.sum())
    names = tuple(f"n{number:08}" for number in range(1000))
    labels = torch.arange(1000).repeat_interleave(sizes)
    files = np.zeros(len(labels), "S1")
    imagenet = ImageFiles("imagenet", Path(), files, np.zeros(len(labels), np.int64), labels, names)

    chosen = choose_labeled(imagenet, "10%", seed=0)

    assert imagenet.labels[chosen].bincount().tolist() == [128] * 1000


def test_a_manifest_repeats_the_choice(tmp_path: Path) -> None:
    path, chosen = tmp_path / "split.json", choose_labeled(ANIMALS, 20, seed=5)

    write_manifest(path, ANIMALS, chosen, seed=5)

    assert torch.equal(read_manifest(path, ANIMALS), chosen)
    manifest = json.loads(path.read_text())
    assert manifest["seed"] == 5
    assert manifest["per_class"] == dict.fromkeys(CLASSES, 5)


def test_a_manifest_of_other_data_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    write_manifest(path, ANIMALS, choose_labeled(ANIMALS, 20, seed=5), seed=5)
    fewer = ANIMALS.select(torch.arange(100))

    with pytest.raises(UserError, match=r"split\.json: .*'animals' .*107 .* 100"):
        read_manifest(path, fewer)


def changed_manifest(path: Path, **changes: Any) -> Path:
    write_manifest(path, ANIMALS, torch.tensor([1, 2]), seed=0)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return path


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", "7", '{"data": "animals"}', "\udcff"])
def test_what_is_not_a_manifest_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "split.json"
    path.write_bytes(content.encode(errors="surrogateescape"))

    with pytest.raises(UserError, match=r"split\.json: .*manifest"):
        read_manifest(path, ANIMALS)


def test_a_manifest_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.json: .*manifest"):
        read_manifest(tmp_path / "nowhere.json", ANIMALS)


@pytest.mark.parametrize(
    "labeled",
    [
        pytest.param("all", id="a word"),
        pytest.param([1.5], id="a fraction"),
        pytest.param(["1"], id="a string"),
        pytest.param([True, False], id="booleans"),
        pytest.param([], id="nothing"),
        pytest.param([5, 5], id="twice the same"),
        pytest.param([-1], id="negative"),
        pytest.param([107], id="beyond the last"),
    ],
)
def test_impossible_indices_are_refused(tmp_path: Path, labeled: object) -> None:
    path = changed_manifest(tmp_path / "split.json", labeled=labeled)

    with pytest.raises(UserError, match=r"split\.json: 'labeled' "):
        read_manifest(path, ANIMALS)


def test_a_manifest_of_other_data_with_an_invalid_count_is_refused(tmp_path: Path) -> None:
    path = changed_manifest(tmp_path / "split.json", images="many", sha256="other")

    with pytest.raises(UserError, match=r"split\.json"):
        read_manifest(path, ANIMALS)


def count_classes(indices: torch.Tensor) -> list[int]:
    assert len(set(indices.tolist())) == len(indices)
    return ANIMALS.labels[indices].bincount(minlength=4).tolist()


def test_uneven_images_are_as_many_as_the_proportions_allow() -> None:
    # 1 : 1/2 : 1/4 : 1/8, and there are 12 dogs.
    assert count_classes(choose_images(ANIMALS, None, seed=0, imbalance=8)) == [24, 12, 6, 3]


@pytest.mark.parametrize(
    ("labels", "counts"),
    [
        (15, [8, 4, 2, 1]),
        (16, [9, 4, 2, 1]),  # 8.53, 4.27, 2.13, 1.07
        (8, [4, 2, 1, 1]),  # 4.27, 2.13, 1.07, 0.53
        ("15%", [9, 4, 2, 1]),  # of 107, rounded down: 16
    ],
)
def test_uneven_labels_add_up_to_their_number(labels: int | str, counts: list[int]) -> None:
    chosen = choose_labeled(ANIMALS, labels, seed=1, imbalance=8)
    assert count_classes(chosen) == counts
    assert torch.equal(chosen, choose_labeled(ANIMALS, labels, seed=1, imbalance=8))
    assert not torch.equal(chosen, choose_labeled(ANIMALS, labels, seed=2, imbalance=8))


def test_uneven_labels_that_leave_a_class_without_any_are_refused() -> None:
    with pytest.raises(UserError, match=r"labels = 5 with data\.imbalance = 8 .* class 'bee'"):
        choose_labeled(ANIMALS, 5, seed=0, imbalance=8)


@given(count=st.integers(0, sum(SIZES)), seed=st.integers(0, 2**63 - 1))
def test_a_share_of_all_samples_is_one_of_each_class(count: int, seed: int) -> None:
    chosen = choose_share(ANIMALS.labels, count, seed)
    assert len(chosen) == count
    for found, size in zip(count_classes(chosen), SIZES, strict=True):
        assert abs(found - size * count / sum(SIZES)) <= 1
    assert set(choose_share(ANIMALS.labels, count // 2, seed).tolist()) <= set(chosen.tolist())
