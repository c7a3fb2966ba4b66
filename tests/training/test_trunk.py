import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from dualstudent import (
    FrozenTrunk,
    PreparedData,
    Recipe,
    Transform,
    Transforms,
    UserError,
    load_recipe,
    prepare_arrays,
)
from dualstudent.training.trunk import use_trunk, use_trunk_within
from dualstudent.trunks import features

IMAGES = 20


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """The images that trunks see; each takes one second."""
    counts = list[int]()

    def forward(trunk: FrozenTrunk, images: Tensor) -> Tensor:
        counts.append(len(images))
        return images.mean(dim=(2, 3)).repeat(1, trunk.features)[:, : trunk.features]

    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path))
    monkeypatch.setattr(FrozenTrunk, "forward", forward)
    monkeypatch.setattr(time, "monotonic", lambda: float(sum(counts)))
    monkeypatch.setattr(
        features, "map_threads", lambda work, pieces, _: nullcontext(map(work, pieces))
    )
    return counts


def make_recipe(weak: int = 3, strong: int = 2) -> Recipe:
    trunk = ("name=efficientnet-lite0", "weights=random", "image_size=32")
    views = (f"weak_views={weak}", f"strong_views={strong}")
    changes = [f"trunk.{each}" for each in (*trunk, *views)]
    return load_recipe("demo", [*changes, "network.name=mlp", "method.name=fixmatch"])


def make_data() -> PreparedData:
    images = np.random.default_rng(0).integers(0, 256, (IMAGES, 8, 8, 3), np.uint8)
    views = Transforms(weak=Transform(translate=1), strong=Transform(noise=0.1))
    return prepare_arrays(images, [0, 1] * 2 + [-1] * (IMAGES - 4), transforms=views)


@pytest.mark.parametrize(
    ("seconds", "views"),
    [
        (3 * IMAGES, (1, 1)),  # clean, weak and strong
        (4 * IMAGES, (1, 1)),
        (5.5 * IMAGES, (2, 2)),
        (100 * IMAGES, (3, 2)),
    ],
)
def test_as_many_views_are_computed_as_there_is_time_for(
    seconds: float, views: tuple[int, int], seen: list[int]
) -> None:
    data = make_data()
    recipe, found = use_trunk_within(seconds, make_recipe(), data)
    assert recipe.trunk is not None
    assert (recipe.trunk.weak_views, recipe.trunk.strong_views) == views
    assert found.trunk == recipe.trunk
    expected = use_trunk(recipe, data)
    every = torch.arange(IMAGES)
    assert torch.equal(
        found.train.make_views(every, [None])[0], expected.train.make_views(every, [None])[0]
    )
    assert sum(seen) <= seconds + 4  # a piece is enough for a forecast


def test_kept_views_take_no_time(seen: list[int]) -> None:
    use_trunk(make_recipe(), make_data())
    seen.clear()
    recipe, _ = use_trunk_within(1, make_recipe(), make_data())
    assert recipe == make_recipe()
    assert seen == []


@pytest.mark.usefixtures("seen")
def test_a_budget_too_short_for_one_view_of_each_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"take about {3 * IMAGES} s here.*leaves 20 s for them"):
        use_trunk_within(20, make_recipe(), make_data())
    assert any(tmp_path.iterdir())  # what was computed is kept for the next time
