from math import log

import pytest
import torch

from dualstudent.methods import CS, CSSettings, DualStudent, DualStudentSettings
from dualstudent.networks import DigitsCNN
from tests.support.fixed_student import FixedStudent, fixed_batch
from tests.support.students import reached_parts, small_batch, small_network

# The first is unsure of both views, the second sure of its own, which is view 2.
FIRST = {"view1": (0.6, 0.5), "view2": (0.55, 0.3)}
SECOND = {"view1": (0.7, 0.4), "view2": (0.9, 0.95)}


def terms_of(
    labels: list[int], settings: CSSettings | None = None, ramp: float = 1.0
) -> list[dict[str, float]]:
    students = [FixedStudent(**FIRST), FixedStudent(**SECOND)]
    losses = CS(students, settings).losses(fixed_batch(labels), ramp)
    return [{name: term.item() for name, term in loss.terms.items()} for loss in losses]


def test_each_follows_the_other_whoever_is_sure() -> None:
    first, second = terms_of(labels=[-1])
    assert first == pytest.approx(
        {
            "classification": 0,
            "logit_distance": 0.01 * (log(0.6 / 0.5) ** 2 + log(0.4 / 0.5) ** 2) / 2,
            "consistency": 10 * (0.5 - 0.55) ** 2,
            "mutual_consistency": 100 * (0.5 - 0.9) ** 2,
        },
        rel=1e-12,
    )
    assert second == pytest.approx(
        {
            "classification": 0,
            "logit_distance": 0.01 * (log(0.9 / 0.95) ** 2 + log(0.1 / 0.05) ** 2) / 2,
            "consistency": 10 * (0.95 - 0.7) ** 2,
            "mutual_consistency": 100 * (0.95 - 0.6) ** 2,
        },
        rel=1e-12,
    )


def test_labeled_samples_do_not_bind_the_students() -> None:
    first, second = terms_of(labels=[-1, 0, 1, 0])
    assert first["mutual_consistency"] == pytest.approx(100 * (0.5 - 0.9) ** 2 / 4, rel=1e-12)
    assert second["mutual_consistency"] == pytest.approx(100 * (0.95 - 0.6) ** 2 / 4, rel=1e-12)
    assert first["classification"] == pytest.approx(-(2 * log(0.6) + log(0.4)) / 4, rel=1e-12)


def test_without_consistency_inside_it_is_the_ablation() -> None:
    full, ablation = terms_of([-1, 0]), terms_of([-1, 0], CSSettings(consistency_weight=0))
    for whole, without in zip(full, ablation, strict=True):
        assert whole["consistency"] > 0
        assert without == whole | {"consistency": 0}


def test_kl_measures_the_distance_between_the_students_too() -> None:
    first, _ = terms_of([-1], CSSettings(distance="kl", mutual_consistency_weight=3))
    kl = 0.9 * log(0.9 / 0.5) + 0.1 * log(0.1 / 0.5)
    assert first["mutual_consistency"] == pytest.approx(3 * kl, rel=1e-12)


def test_ramp_weighs_both_consistencies_only() -> None:
    for full, weighed in zip(terms_of([-1, 0]), terms_of([-1, 0], ramp=0.25), strict=True):
        names = ("consistency", "mutual_consistency")
        assert weighed == pytest.approx(full | {name: 0.25 * full[name] for name in names})


@pytest.fixture
def students() -> list[DigitsCNN]:
    return [small_network(0), small_network(1)]


@pytest.mark.parametrize("own", [0, 1])
def test_following_the_other_moves_the_follower_only(students: list[DigitsCNN], own: int) -> None:
    losses = CS(students).losses(small_batch(), ramp=1.0)
    torch.autograd.backward(losses[own].terms["mutual_consistency"])
    assert reached_parts(students[own]) == {"trunk", "consistency head"}
    assert reached_parts(students[1 - own]) == set()


def test_it_is_dual_student_without_stable_samples(students: list[DigitsCNN]) -> None:
    batch = small_batch()
    plain = CS(students).losses(batch, ramp=1.0)
    dual = DualStudent(students, DualStudentSettings(confidence_threshold=0.0)).losses(batch, 1.0)
    for cs, ds in zip(plain, dual, strict=True):
        for name in ("classification", "logit_distance", "consistency"):
            assert cs.terms[name].item() == ds.terms[name].item() > 0
        assert cs.terms["mutual_consistency"].item() > ds.terms["stabilization"].item() > 0
