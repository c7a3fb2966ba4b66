"""Cross-validation in which unknown labels neither count as wrong nor are missing in training."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, log_loss
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_score,
    learning_curve,
)

from dualstudent import DualStudentClassifier, SemiSupervisedKFold, UserError, skip_unknown

X, Y = load_iris(return_X_y=True)
FEW = np.where(np.arange(len(Y)) % 5 == 0, Y, -1)  # 10 labels a class
KNOWN = FEW >= 0
MODEL = LogisticRegression(max_iter=1000).fit(X[KNOWN], FEW[KNOWN])


@pytest.mark.parametrize(
    "unknown",
    [
        FEW,
        FEW.astype(float),
        np.where(KNOWN, Y.astype(float), np.nan),
        np.where(KNOWN, Y.astype(object), None),
        pd.Series(np.where(KNOWN, Y.astype(float), np.nan)),
    ],
    ids=["int", "float", "nan", "none", "pandas"],
)
def test_unknown_labels_do_not_count(unknown: Any) -> None:
    expected = MODEL.score(X[KNOWN], Y[KNOWN])
    assert skip_unknown()(MODEL, X, unknown) == pytest.approx(expected)
    assert expected > 0.9  # while scikit-learn would say a fifth of it


def test_names_and_frames_are_scored_too() -> None:
    names = np.array(["a", "b", "c"])
    model = LogisticRegression(max_iter=1000).fit(pd.DataFrame(X), names[Y])
    unknown = np.where(KNOWN, names[Y], "-1")
    assert skip_unknown("accuracy")(model, pd.DataFrame(X), unknown) > 0.9


def test_other_scorers_see_the_known_labels_only() -> None:
    f1 = f1_score(Y[KNOWN], MODEL.predict(X[KNOWN]), average="macro")
    assert skip_unknown("f1_macro")(MODEL, X, FEW) == pytest.approx(f1)
    loss = log_loss(Y[KNOWN], MODEL.predict_proba(X[KNOWN]))
    assert skip_unknown("neg_log_loss")(MODEL, X, FEW) == pytest.approx(-loss)
    assert skip_unknown(lambda model, X, y: float(len(y)))(MODEL, X, FEW) == KNOWN.sum()
    weights = np.linspace(1, 2, len(Y))
    weighted = MODEL.score(X[KNOWN], Y[KNOWN], sample_weight=weights[KNOWN])
    assert skip_unknown()(MODEL, X, FEW, sample_weight=weights) == pytest.approx(weighted)


def test_a_score_without_any_label_and_an_unknown_scorer_are_refused() -> None:
    with pytest.raises(UserError, match="all labels are unknown"):
        skip_unknown()(MODEL, X, np.full(len(Y), -1))
    with pytest.raises(ValueError, match="akkuracy"):
        skip_unknown("akkuracy")


def test_folds_are_those_of_the_known_labels_and_all_others_are_trained_on() -> None:
    splitter = SemiSupervisedKFold(5, shuffle=True, random_state=0)
    reference = StratifiedKFold(5, shuffle=True, random_state=0)
    positions = np.flatnonzero(KNOWN)
    expected = [positions[test] for _, test in reference.split(positions, FEW[positions])]
    found = list(splitter.split(X, FEW))
    assert len(found) == splitter.get_n_splits() == 5
    for (train, test), known in zip(found, expected, strict=True):
        np.testing.assert_array_equal(test, known)
        assert np.bincount(FEW[test]).tolist() == [2, 2, 2]
        np.testing.assert_array_equal(np.sort(np.append(train, test)), np.arange(len(Y)))
        unlabeled = len(Y) - KNOWN.sum()
        assert (FEW[train[:unlabeled]] == -1).all()
        for count in (3, 6, 24):  # a prefix has as many of each class
            assert np.ptp(np.bincount(FEW[train[unlabeled:][:count]])) == 0
    again = list(splitter.split(X, FEW))
    assert all((a[0] == b[0]).all() for a, b in zip(found, again, strict=True))


def test_too_few_labels_for_the_splits_are_refused() -> None:
    with pytest.raises(UserError, match=r"n_splits = 11.*10 known"):
        next(SemiSupervisedKFold(11).split(X, FEW))
    with pytest.raises(UserError, match="needs y"):
        next(SemiSupervisedKFold().split(X))


@pytest.mark.learns
def test_searches_and_learning_curves_use_both() -> None:
    classifier = DualStudentClassifier(random_state=0, epochs=10)
    folds = SemiSupervisedKFold(2)
    plain = cross_val_score(classifier, X, FEW, cv=folds, scoring="accuracy")
    skipping = cross_val_score(classifier, X, FEW, cv=folds, scoring=skip_unknown("accuracy"))
    np.testing.assert_array_equal(plain, skipping)  # no test part has an unknown label
    assert plain.mean() > 0.5  # 0.83 here, chance is 0.33
    search = GridSearchCV(classifier, {"epochs": [1, 2]}, cv=folds, scoring=skip_unknown())
    assert set(search.fit(X, FEW).best_params_) == {"epochs"}
    unlabeled = int((FEW == -1).sum())
    sizes, _, scores = learning_curve(
        clone(classifier).set_params(epochs=2),
        X,
        FEW,
        cv=folds,
        train_sizes=unlabeled + np.array([3, 12]),
    )
    assert (sizes - unlabeled).tolist() == [3, 12]
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("unknown", [-1, -1.0, None, float("nan"), "-1", "nan"])
@pytest.mark.parametrize("kind", [list, np.asarray, lambda y: np.array(y, dtype=object), pd.Series])
def test_names_may_be_unknown_in_all_ways(unknown: object, kind: Callable[..., Any]) -> None:
    x, y = np.zeros((8, 1)), kind(["a", "b", "a", "b", "a", unknown, unknown, "b"])
    always = DummyClassifier(strategy="constant", constant="a").fit(x, ["a", "b"] * 4)
    assert skip_unknown("accuracy")(always, x, y) == 0.5
    for train, test in SemiSupervisedKFold(n_splits=3).split(x, y):
        assert train[:2].tolist() == [5, 6]
        assert len(test) == 2


def test_a_metric_is_not_a_scorer() -> None:
    with pytest.raises(UserError, match=r"f1_score.*make_scorer"):
        skip_unknown(f1_score)
