"""The same two domains, said in Python, as a folder, as a table and by a recipe."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dualstudent import DataSettings, PreparedData, UserError, prepare, prepare_arrays
from dualstudent.batch import Batch
from dualstudent.data.batching.loader import BatchLoader, BatchSettings
from dualstudent.data.images.cache import decode_images
from dualstudent.data.images.check import check_images
from dualstudent.data.images.own import list_images
from dualstudent.errors import DataWarning
from dualstudent.recipes.own_images import (
    complete_recipe,
    locate_images,
    use_own_images,
    validate_request,
)
from tests.support.pictures import save_picture

POINTS = np.arange(16.0).reshape(8, 2)
LABELS = [0, 1, 0, 1, -1, 1, -1, -1]
DOMAINS = [1, 1, 2, 1, 1, -1, -1, -3]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "cache"))


def draw(root: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        save_picture(root / name, seed=number)
    return root


def told(data: PreparedData) -> list[tuple[int, bool]]:
    """Label and domain of each sample that is used."""
    assert data.is_target is not None
    used = sorted({*data.labeled.tolist(), *data.unlabeled.tolist()})
    return sorted(zip(data.labels[used].tolist(), data.is_target[used].tolist(), strict=True))


def test_arrays() -> None:
    data = prepare_arrays(POINTS, LABELS, sample_domain=DOMAINS)
    assert data.labeled.tolist() == [0, 1, 2, 3, 5]
    assert data.unlabeled.tolist() == [5, 6, 7]  # of the target, with and without a label
    assert data.is_target is not None
    assert data.is_target.tolist() == [False] * 5 + [True] * 3


@pytest.mark.parametrize(
    ("domains", "y", "message"),
    [
        ([1] * 8, LABELS, "the target has no samples"),
        ([-1] * 8, LABELS, "the source has no samples"),
        ([1, 0, 1, 1, 1, -1, -1, -1], LABELS, "0 and NaN"),
        ([1, np.nan, 1, 1, 1, -1, -1, -1], LABELS, "0 and NaN"),
        ([1, -1], LABELS, "one number for each of the 8 samples"),
        (["a"] * 8, LABELS, "one number for each"),
        (DOMAINS, [0, 0, 0, 0, -1, 1, -1, -1], "no sample of the source has the label 1"),
    ],
)
def test_arrays_that_name_no_two_domains(domains: list[float], y: list[int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        prepare_arrays(POINTS, y, sample_domain=domains)


def test_a_folder_and_a_table_say_the_same(tmp_path: Path) -> None:
    names = ["source/a/1.png", "source/b/2.png", "source/unlabeled/9.png", "source/test/a/8.png"]
    names += ["target/a/3.png", "target/unlabeled/4.png", "target/5.png", "target/test/b/6.png"]
    folder = draw(tmp_path / "both", *names)
    rows = [
        ("both/source/a/1.png", "a", "train", "source"),
        ("both/source/b/2.png", "b", "train", "source"),
        ("both/source/unlabeled/9.png", "", "", "source"),
        ("both/source/test/a/8.png", "a", "test", "source"),
        ("both/target/a/3.png", "a", "train", "target"),
        ("both/target/unlabeled/4.png", "", "train", "target"),
        ("both/target/5.png", "", "", "Target"),
        ("both/target/test/b/6.png", "b", "test", "target"),
    ]
    with (tmp_path / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label", "part", "domain"), *rows])
    for path in (folder, tmp_path / "table.csv"):
        data = prepare(DataSettings(path=path, image_size=8), seed=0)
        assert told(data) == [(-1, True), (-1, True), (0, False), (0, True), (1, False)]
        assert data.test_labels.tolist() == [1]
        assert [each.name for each in data.test_files] == ["6.png"]


def test_classes_may_be_called_source_and_target(tmp_path: Path) -> None:
    folder = draw(tmp_path / "drawings", "source/1.png", "target/2.png")
    listing = list_images(folder)
    assert listing.classes == ("source", "target")
    assert not listing.adapts


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("source/a/1.png", "source/b/2.png", "target/test/a/1.png"), "target has no training"),
        (("source/a/1.png", "source/b/2.png", "target/c/1.png"), "has the classes c"),
        (("source/a/1.png", "target/a/2.png", "target/unlabeled/3.png"), "all labels are 'a'"),
        (("source/a/1.png", "source/b/2.png", "Target/1.png"), "has the folders source, Target;"),
        (("source/a/1.png", "source/b/2.png", "target/1.png", "test/a/1.png"), "go into .*/test"),
        (("source/unlabeled/1.png", "target/a/2.png", "target/b/3.png"), "no folder per class"),
    ],
)
def test_folders_that_hold_no_two_domains(
    names: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        list_images(draw(tmp_path / "both", *names))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["1.png,a,source", "2.png,b,"], "line 3 is of the domain ''"),
        (["1.png,a,source", "2.png,b,source"], "the target has no training images"),
        (["1.png,a,target", "2.png,b,target"], "no image of the source has a label"),
        (["1.png,a,source", "2.png,b,target"], "the target has labels of 'b', the source has none"),
    ],
)
def test_tables_that_hold_no_two_domains(rows: list[str], message: str, tmp_path: Path) -> None:
    draw(tmp_path, "1.png", "2.png")
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["path,label,domain", *rows]))
    with pytest.raises(UserError, match=message):
        list_images(table)


def test_some_labels_of_a_published_target() -> None:
    settings = DataSettings(source="digits-8x8", target="mnist-5k", image_size=8, target_labels=30)
    data = prepare(settings, seed=0)
    assert data.is_target is not None
    of_target = data.labeled[data.is_target[data.labeled]]
    assert len(of_target) == 30
    assert data.labels[of_target].bincount().tolist() == [3] * 10
    assert not torch.isin(of_target, data.unlabeled).any()
    assert bool(data.is_target[data.unlabeled].all())
    assert (data.labels[data.unlabeled] == -1).all()
    truth = prepare(DataSettings(source="mnist-5k", image_size=8), seed=0)
    first = int(data.is_target.int().argmax())
    assert torch.equal(data.labels[of_target], truth.labels[of_target - first])


def test_labels_of_the_target_need_a_target() -> None:
    with pytest.raises(ValueError, match="name a target"):
        DataSettings(source="mnist-5k", target_labels=10)


def test_labels_of_the_target_that_cannot_be_balanced_are_named() -> None:
    settings = DataSettings(source="digits-8x8", target="mnist-5k", image_size=8, target_labels=5)
    with pytest.raises(UserError, match=r"data\.target_labels = 5 .* multiple of 10"):
        prepare(settings, seed=0)


@pytest.mark.parametrize(("labels", "repeated"), [(10, 10), (500, 2)])
def test_labels_of_the_target_are_drawn_more_often_than_others(labels: int, repeated: int) -> None:
    settings = DataSettings(
        source="digits-8x8", target="mnist-5k", image_size=8, target_labels=labels
    )
    data = prepare(settings, seed=0)
    loader = BatchLoader(data, BatchSettings(size=120, labeled=100), seed=0)
    known = [batch.domains[batch.labels >= 0] for batch in map(loader.batch, range(40))]
    share = torch.cat(known).float().mean().item()
    of_source = len(data.labeled) - labels
    assert of_source // labels >= repeated
    expected = repeated * labels / (repeated * labels + of_source)
    assert share == pytest.approx(expected, abs=0.03)  # σ is below 0.008


def test_a_class_that_a_wholly_labeled_target_lacks_is_named(tmp_path: Path) -> None:
    names = ["source/a/1.png", "source/b/2.png", "source/c c/3.png", "target/b/4.png"]
    folder = draw(tmp_path / "both", *names, "target/test/a/6.png")
    rows = [f"both/{name},{name.split('/')[1]},{name.split('/')[0]}" for name in names]
    (tmp_path / "table.csv").write_text("\n".join(["path,label,domain", *rows]))
    said = "all of the target is labeled, none as 'a', 'c c': "
    for path in (folder, tmp_path / "table.csv"):
        found = check_images(decode_images(list_images(path), 16)).findings
        assert [each.severity for each in found if each.message.startswith(said)] == ["warning"]
    draw(folder, "target/unlabeled/5.png")  # may be one of these
    found = check_images(decode_images(list_images(folder), 16)).findings
    assert not any("all of the target" in each.message for each in found)


def test_arrays_with_a_class_that_a_wholly_labeled_target_lacks() -> None:
    y = [*LABELS[:5], 1, 1, 1]
    with pytest.warns(DataWarning, match=r"^sample_domain: .* none as '0':") as caught:
        prepare_arrays(POINTS, y, sample_domain=DOMAINS)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    prepare_arrays(POINTS, LABELS, sample_domain=DOMAINS)  # says nothing: some are unlabeled


@pytest.mark.parametrize("labels", ["all", 4])
@pytest.mark.parametrize("known", [False, True])
def test_unsupervised_terms_use_the_target_only(
    labels: int | str, known: bool, tmp_path: Path
) -> None:
    names = [f"source/{name}/{number}.png" for name in "ab" for number in range(5)]
    names += [f"target/{name}/{number}.png" for name in "ab" for number in range(2)]
    folder = draw(tmp_path / "both", *names, *([] if known else ["target/unlabeled/1.png"]))
    data = prepare(DataSettings(path=folder, image_size=8, labels=labels), seed=0)
    assert data.is_target is not None
    of_target = set(data.is_target.nonzero().squeeze(1).tolist())
    without_label = of_target - set(data.labeled.tolist())
    assert set(data.unlabeled.tolist()) == (without_label or of_target)
    assert len(data.labeled) == (14 if labels == "all" else 4)


def test_a_published_target_that_is_wholly_labeled_is_used_as_a_whole() -> None:
    settings = DataSettings(
        source="digits-8x8", target="mnist-5k", image_size=8, target_labels=4000
    )
    data = prepare(settings, seed=0)
    assert data.is_target is not None
    assert torch.equal(data.unlabeled, data.is_target.nonzero().squeeze(1))
    assert (data.labels[data.unlabeled] >= 0).all()


def test_the_chosen_batch_fits_a_target_that_is_wholly_labeled(tmp_path: Path) -> None:
    names = [f"source/{name}/{number}.png" for name in "ab" for number in range(6)]
    names += [f"target/{name}/{number}.png" for name in "ab" for number in range(2)]
    folder = draw(tmp_path / "both", *names, "target/test/a/1.png")
    for changes in ([], ["data.labels=8"]):
        asked = validate_request(locate_images(folder), changes)
        images = decode_images(asked.data.list_images(), 16)
        recipe, _ = complete_recipe(asked, check_images(images), changes)
        data = prepare(recipe.data, seed=0, images=images)
        batch = BatchLoader(data, recipe.batch, seed=0).batch(0)
        assert (batch.domains[batch.unlabeled] == 1).all()
        assert batch.targets.any()


def test_targets_are_told_by_the_domain_also_if_all_rows_are_of_the_source() -> None:
    views, labels = (torch.zeros(3, 2),), torch.tensor([-1, -1, 0])
    assert Batch(views, labels).targets.tolist() == [True, True, False]  # a single domain
    mixed = Batch(views, labels, domains=torch.tensor([0, 1, 1]))
    assert mixed.targets.tolist() == [False, True, False]
    of_source = Batch(views, labels, domains=torch.zeros(3, dtype=torch.int64))
    assert not of_source.targets.any()
    assert not replace(of_source, views=views).targets.any()


def test_labels_of_the_target_are_never_held_out(tmp_path: Path) -> None:
    names = [f"source/{name}/{number}.png" for name in "ab" for number in range(2)]
    names += [f"target/{name}/{number}.png" for name in "ab" for number in range(20)]
    folder = draw(tmp_path / "both", *names, "target/unlabeled/1.png")
    where = locate_images(folder)
    asked = validate_request(where)
    found = check_images(decode_images(asked.data.list_images(), 16))
    assert found.labeled_source == {"a": 2, "b": 2}
    recipe, _ = complete_recipe(asked, found, [])
    assert recipe.data.validation == 0  # of the source there are too few to spare any

    settings = DataSettings(path=folder, image_size=8, validation=0.5, adapts=True)
    data = prepare(settings, seed=0)
    assert {file.parent.parent.name for file in data.test_files} == {"source"}
    assert len(data.test_files) == 2
    assert settings.evaluated_part == "source validation"
    given = use_own_images("digits", where, ["data.validation=0.5"])
    assert given.data.adapts
