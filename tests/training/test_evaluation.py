import math

import pytest
import torch
from torch import Tensor, nn

from dualstudent.data.samples import ImageSamples
from dualstudent.data.transforms.normalization import Normalization
from dualstudent.data.transforms.policy import Transform, Transforms
from dualstudent.prediction import Prediction
from dualstudent.training.evaluation import Evaluation, Evaluator
from dualstudent.training.inference import evaluation_mode

CLASSES = 7
LABELS = torch.tensor([0, 0, 1, 2, 3, 4, 5, 5])  # none of class 6


class Says(nn.Module):
    """Returns logits from a table; the pixel of an image is its row."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = nn.Parameter(rows)

    def forward(self, images: Tensor) -> Prediction:
        row = (images[:, 0, 0, 0] * 255).round().long() % len(self.rows)
        return Prediction(self.rows[row], self.rows[row], row[:, None].float())


def evaluator(track: int = 0, noise: float = 0.0) -> Evaluator:
    pixels = torch.arange(len(LABELS), dtype=torch.uint8).reshape(-1, 1, 1, 1)
    samples = ImageSamples(
        pixels, Transforms(weak=Transform(noise=noise)), Normalization(mean=(0.0,), std=(1.0,))
    )
    return Evaluator(samples, LABELS, threshold=0.5, seed=0, track=track)


def table(places: list[int], sureness: float) -> Tensor:
    """Logits that give the true class of each sample a given rank, from 0."""
    rows = torch.zeros(len(LABELS), CLASSES)
    for row, (label, place) in enumerate(zip(LABELS.tolist(), places, strict=True)):
        others = [c for c in range(CLASSES) if c != label]
        order = [*others[:place], label, *others[place:]]
        for rank, c in enumerate(order):
            rows[row, c] = -sureness * rank
    return rows


def test_error_top_5_and_classes_by_hand() -> None:
    network = Says(table([0, 1, 0, 4, 5, 6, 0, 2], sureness=10.0))

    (figures,) = evaluator().evaluate({"student": network}).networks.values()

    assert figures == Evaluation(
        error=100 * 5 / 8,
        top5_error=100 * 2 / 8,
        stable_share=100.0,
        stable_accuracy=100 * 3 / 8,
        class_accuracy=[50.0, 100.0, 0.0, 0.0, 0.0, 50.0, None],
        stable_class_accuracy=[50.0, 100.0, 0.0, 0.0, 0.0, 50.0, None],
    )


def test_only_confident_answers_are_stable() -> None:
    rows = table([0] * 8, sureness=10.0)
    rows[[1, 2]] *= 1e-3  # right, but hardly more probable than the others

    (figures,) = evaluator().evaluate({"student": Says(rows)}).networks.values()

    assert (figures.error, figures.stable_share, figures.stable_accuracy) == (0.0, 75.0, 100.0)
    assert figures.class_accuracy[:2] == [100.0, 100.0]
    assert figures.stable_class_accuracy[:2] == [100.0, None]


def test_answers_that_a_perturbation_changes_are_not_stable() -> None:
    network = Says(table([0] * 8, sureness=10.0))

    (figures,) = evaluator(noise=1.0).evaluate({"student": network}).networks.values()

    assert figures.error == 0.0
    assert figures.stable_share < 50.0


def test_there_is_no_top_5_of_five_classes() -> None:
    samples = ImageSamples(
        torch.zeros(1, 1, 1, 1, dtype=torch.uint8), Transforms(), Normalization()
    )
    few = Evaluator(samples, torch.tensor([0]), threshold=0.5, seed=0)

    assert few.evaluate({"a": Says(torch.zeros(1, 5))}).networks["a"].top5_error is None


def test_distances_are_euclidean_and_only_between_networks_of_one_shape() -> None:
    one, other = table([0] * 8, 10.0), table([1] * 8, 10.0)
    networks = {"one": Says(one), "other": Says(other), "wide": Says(torch.zeros(9, CLASSES))}

    distances = evaluator().evaluate(networks).distances

    assert list(distances) == ["one-other"]
    assert distances["one-other"].weights == pytest.approx(
        math.dist(one.flatten().tolist(), other.flatten().tolist())
    )
    # Nearly all probability sits on the first class of the order: two unit vectors.
    assert distances["one-other"].predictions == pytest.approx(math.sqrt(2), rel=1e-3)


def test_the_truth_of_the_first_samples_is_tracked() -> None:
    rows = table([0, 1, 0, 4, 5, 6, 0, 2], sureness=1.0)

    tracked = evaluator(track=3).evaluate({"student": Says(rows)}).tracked

    weights = [math.exp(-rank) for rank in range(CLASSES)]
    expected = [weights[0], weights[1], weights[0]]
    assert tracked["student"] == pytest.approx([w / sum(weights) for w in expected], rel=1e-5)
    assert evaluator().evaluate({"student": Says(rows)}).tracked == {}


def test_modes_are_restored_network_by_network() -> None:
    trains, rests = nn.Dropout(), nn.Dropout().eval()

    with evaluation_mode(trains, rests):
        assert not trains.training
        assert torch.is_inference_mode_enabled()
    assert trains.training
    assert not rests.training
