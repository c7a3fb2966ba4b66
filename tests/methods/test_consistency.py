from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualstudent.batch import Batch
from dualstudent.generators import seeded_rng
from dualstudent.methods import MeanTeacher, PiModel, Task, TemporalEnsembling
from dualstudent.methods.consistency import ConsistencyMethod, ConsistencySettings
from dualstudent.prediction import Prediction
from tests.support.students import reached_parts, small_batch, small_network

LABELS = [-1, -1, 2, 0, -1]


class FollowsTheStars(ConsistencyMethod):
    """A method whose target does not depend on its student."""

    def target(self, batch: Batch, prediction: Prediction) -> Tensor:
        with seeded_rng("stars"):
            return torch.rand(len(batch), 3, dtype=torch.float64).softmax(dim=1)


def random_prediction() -> Prediction:
    with seeded_rng("prediction"):
        heads = [torch.randn(5, 3, dtype=torch.float64) for _ in range(2)]
    return Prediction(heads[0], heads[1], torch.empty(5, 0))


def five_samples() -> Batch:
    images, labels = torch.zeros(5, 1, 4, 4), torch.tensor(LABELS)
    return Batch((images, images), labels, labels < 0, torch.arange(5))


def terms_of(ramp: float = 1.0, **settings: Any) -> dict[str, float]:
    method = FollowsTheStars([small_network()], ConsistencySettings(name="stars", **settings))
    prediction, batch = random_prediction(), five_samples()
    terms = method.terms(prediction, method.target(batch, prediction), batch, ramp)
    return {name: term.item() for name, term in terms.items()}


def softmax(logits: Tensor) -> NDArray[Any]:
    powers = np.exp(logits.numpy())
    quotient: NDArray[Any] = powers / powers.sum(axis=1, keepdims=True)
    return quotient


def test_every_term_by_hand() -> None:
    prediction = random_prediction()
    target = FollowsTheStars([small_network()], ConsistencySettings(name="stars")).target(
        five_samples(), prediction
    )
    p, q, t = (softmax(prediction[0]), softmax(prediction[1]), target.numpy())
    cross_entropy = -np.log(p[2, 2]) - np.log(p[3, 0])
    squares = (prediction[0].numpy() - prediction[1].numpy()) ** 2
    expected = {
        "classification": cross_entropy / 5,
        "logit_distance": 0.01 * squares.sum() / 15,
        "consistency": 100 * ((q - t) ** 2).sum() / 15,
    }
    assert terms_of() == pytest.approx(expected, rel=1e-12)
    by_kl = {"consistency": 100 * (t * np.log(t / q)).sum() / 5}
    assert terms_of(distance="kl") == pytest.approx(expected | by_kl, rel=1e-12)
    by_labeled = {"classification": cross_entropy / 2}
    assert terms_of(classification_average="labeled") == pytest.approx(
        expected | by_labeled, rel=1e-12
    )


def test_weights_and_ramp_multiply_their_terms_only() -> None:
    full = terms_of()
    weighed = {"consistency": full["consistency"] * 0.07 * 0.25}
    assert terms_of(ramp=0.25, consistency_weight=7) == pytest.approx(full | weighed, rel=1e-12)
    assert terms_of(ramp=0.0) == full | {"consistency": 0.0}
    untied = full | {"logit_distance": 0.0}
    assert terms_of(logit_distance_weight=0) == untied


def ready(kind: type[PiModel] | type[TemporalEnsembling] | type[MeanTeacher]) -> ConsistencyMethod:
    """A method that has seen the batch for an epoch, so that its targets differ from it."""
    method = kind([small_network()])
    method.begin(Task(2, samples=16, classes=3, image_shape=(1, 4, 4), value_range=1))
    method.losses(small_batch(), ramp=1.0)
    method.after_epoch(0, [])
    return method


@pytest.mark.parametrize(
    ("term", "reached"),
    [
        ("classification", {"trunk", "class head"}),
        ("logit_distance", {"trunk", "class head", "consistency head"}),
        ("consistency", {"trunk", "consistency head"}),
    ],
)
@pytest.mark.parametrize("kind", [PiModel, TemporalEnsembling, MeanTeacher])
def test_each_term_reaches_what_it_should(
    kind: type[PiModel] | type[TemporalEnsembling] | type[MeanTeacher],
    term: str,
    reached: set[str],
) -> None:
    method = ready(kind)
    (loss,) = method.losses(small_batch(), ramp=1.0)
    torch.autograd.backward(loss.terms[term])
    (student,) = method.students
    assert reached_parts(student) == reached  # type: ignore[arg-type]
    own = {id(p) for p in student.parameters()}
    assert all(p.grad is None for p in method.parameters() if id(p) not in own)
