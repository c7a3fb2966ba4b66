import numpy as np
import pytest
import torch

from dualstudent.labeling.ranking import SELECTED, select_for_labeling
from tests.support.greedy import greedy_order


def made(samples: int, labeled: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    centers = 3 * torch.randn(6, 5, generator=draw)
    features, known = (
        centers[torch.randint(6, (count,), generator=draw)] + torch.randn(count, 5, generator=draw)
        for count in (samples, labeled)
    )
    return torch.rand(samples, generator=draw), features, known


@pytest.mark.parametrize(("samples", "labeled"), [(60, 8), (25, 1), (40, 1200)])
def test_every_place_adds_most_by_the_definition(samples: int, labeled: int) -> None:
    """1,200: more labeled ones than are compared at a time."""
    doubt, features, known = made(samples, labeled, seed=samples)
    found = select_for_labeling(doubt, features, known)
    expected = greedy_order(
        doubt.double().numpy(), features.double().numpy(), known.double().numpy(), 20
    )
    assert found[:20].tolist() == expected
    assert sorted(found.tolist()) == list(range(samples))


def test_only_directions_of_features_count() -> None:
    doubt, features, known = made(50, 5, seed=1)
    longer = features * torch.linspace(0.5, 20, 50)[:, None]
    assert torch.equal(
        select_for_labeling(doubt, longer, 7 * known), select_for_labeling(doubt, features, known)
    )


def test_copies_are_asked_for_once() -> None:
    """Of five images and five copies of each, five different ones come first."""
    doubt, features, known = made(5, 2, seed=2)
    found = select_for_labeling(doubt.repeat(6), features.repeat(6, 1), known)
    assert sorted(place % 5 for place in found[:5].tolist()) == [0, 1, 2, 3, 4]


def test_a_copy_of_a_labeled_image_is_asked_for_last() -> None:
    doubt, features, known = made(30, 3, seed=3)
    features[11], doubt[11] = known[2], 1.0
    assert select_for_labeling(doubt, features, known)[-1] == 11


def test_all_images_alike_or_without_doubt_still_have_an_order() -> None:
    alike = torch.ones(4, 3)
    assert sorted(select_for_labeling(torch.rand(4), alike, alike[:1]).tolist()) == [0, 1, 2, 3]
    doubt, features, known = made(4, 2, seed=4)
    order = select_for_labeling(torch.zeros_like(doubt), features, known)
    assert sorted(order.tolist()) == [0, 1, 2, 3]


def test_more_than_anybody_labels_are_not_planned() -> None:
    doubt, features, known = made(SELECTED + 40, 4, seed=5)
    found = select_for_labeling(doubt, features, known)
    assert len(set(found.tolist())) == len(found) == SELECTED
    assert np.mean(doubt[found].numpy()) > np.mean(doubt.numpy())
