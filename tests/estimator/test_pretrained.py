"""The estimator on features of a frozen trunk."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from tests.support.trunk_weights import save_weights

from dualstudent import DualStudentClassifier, UserError
from dualstudent.networks import EfficientNetLite0
from dualstudent.trunks.trunk import FrozenTrunk

_, LABELS = load_digits(return_X_y=True)
IMAGES: NDArray[np.uint8] = (load_digits().images * 15).astype(np.uint8)
KNOWN = np.where(np.arange(150) % 3 == 0, LABELS[:150], -1)


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features are kept once for all tests."""
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path_factory.getbasetemp() / "kept"))


@pytest.fixture(scope="module")
def trunk(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    save_weights(path := tmp_path_factory.mktemp("weights") / "mine.pt")
    few = {"image_size": 32, "weak_views": 1, "strong_views": 1}
    return {"name": "efficientnet-lite0", "weights": str(path)} | few


def make_classifier(trunk: dict[str, Any]) -> DualStudentClassifier:
    return DualStudentClassifier(epochs=5, random_state=0, device="cpu", pretrained=trunk)


@pytest.fixture
def fitted(trunk: dict[str, Any]) -> DualStudentClassifier:
    return make_classifier(trunk).fit(IMAGES[:150], KNOWN)


def test_scores_are_those_of_the_probabilities(fitted: DualStudentClassifier) -> None:
    assert fitted.recipe_["network"]["name"] == "mlp"
    probabilities = fitted.predict_proba(IMAGES[150:200])
    assert probabilities.sum(axis=1) == pytest.approx(1)
    assert probabilities.std(axis=0).max() > 1e-2  # it tells images apart
    right = probabilities.argmax(axis=1) == LABELS[150:200]
    assert fitted.score(IMAGES[150:200], LABELS[150:200]) == right.mean()
    assert fitted.stable_.shape == fitted.transduction_.shape == (150,)


def test_new_images_get_the_features_of_training_images(fitted: DualStudentClassifier) -> None:
    unknown = KNOWN == -1
    assert (fitted.predict(IMAGES[:150]) == fitted.transduction_)[unknown].mean() > 0.97


def test_a_second_fit_computes_nothing(
    fitted: DualStudentClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fitted.predict_proba(IMAGES[:20])
    with monkeypatch.context() as context:
        context.setattr(FrozenTrunk, "forward", lambda *_: pytest.fail("computed again"))
        again = clone(fitted).fit(IMAGES[:150], KNOWN)
    assert again.predict_proba(IMAGES[:20]) == pytest.approx(expected)


def test_a_pickle_holds_no_trunk_and_needs_the_same_weights(
    fitted: DualStudentClassifier, trunk: dict[str, Any]
) -> None:
    content = pickle.dumps(fitted)
    assert len(content) < 4e6  # the weights of the trunk alone are 13 MB
    again = pickle.loads(content)
    assert (again.predict_proba(IMAGES[:20]) == fitted.predict_proba(IMAGES[:20])).all()
    path = Path(trunk["weights"])
    original = path.read_bytes()
    torch.save(EfficientNetLite0(weights="random").state_dict(), path)
    try:
        with pytest.raises(UserError, match="DualStudentClassifier: was trained with other weigh"):
            pickle.loads(content)
    finally:
        path.write_bytes(original)


def test_other_shapes_are_refused(fitted: DualStudentClassifier) -> None:
    with pytest.raises(UserError, match=r"shape \(1, 8, 9\); .* fitted with \(1, 8, 8\)"):
        fitted.predict(np.zeros((2, 8, 9), np.uint8))


def test_vectors_are_refused() -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.raises(UserError, match="pretrained = 'efficientnet-lite0' is for images; X hold"):
        DualStudentClassifier(pretrained="efficientnet-lite0").fit(X, y)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UserError, match=r"trunk\.name = 'resnet50'"):
        DualStudentClassifier(pretrained="resnet50").fit(IMAGES[:20], LABELS[:20])
