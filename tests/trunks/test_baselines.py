"""Baselines on feature vectors, against scikit-learn and against dense matrices in NumPy."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from dualstudent.trunks.baselines import BASELINES, predict_baseline
from dualstudent.trunks.neighbors import find_neighbors, scale_to_unit


def make_groups(count: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Overlapping groups of three classes: vectors, labels (15 are known), and truth."""
    random = np.random.default_rng(seed)
    truth = np.arange(count) % 3
    vectors = (2 * np.eye(8)[truth] + random.normal(size=(count, 8))).astype(np.float32)
    return vectors, np.where(np.arange(count) < 15, truth, -1), truth


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (a, b))
    return a.astype(np.float64) @ b.T.astype(np.float64)


def test_neighbors_are_those_of_all_cosines() -> None:
    vectors, _, _ = make_groups()
    found = find_neighbors(scale_to_unit(vectors), 4)
    expected = cosines(vectors, vectors)
    np.fill_diagonal(expected, -2)
    np.testing.assert_array_equal(found.indices, np.argsort(-expected, axis=1)[:, :4])
    np.testing.assert_allclose(found.similarity, -np.sort(-expected, axis=1)[:, :4], atol=1e-5)
    assert find_neighbors(scale_to_unit(vectors[:3]), 10).indices.shape == (3, 2)
    assert find_neighbors(scale_to_unit(vectors[:3]), 10, vectors[:5]).indices.shape == (5, 3)
    assert (scale_to_unit(np.zeros((2, 3))) == 0).all()


def test_logistic_regression_is_that_of_scikit_learn_on_the_labels() -> None:
    vectors, labels, _ = make_groups()
    known = labels >= 0
    strength = 12.8 / vectors.shape[1]  # 1 / 100 for 1,280 features
    expected = LogisticRegression(C=strength, max_iter=1000).fit(vectors[known], labels[known])
    found = predict_baseline("logistic regression", vectors, labels, vectors, 3)
    np.testing.assert_allclose(found, expected.predict_proba(vectors))


def test_classes_without_a_label_have_probability_0() -> None:
    vectors, labels, _ = make_groups()
    labels[labels == 1] = -1
    for name in BASELINES:
        found = predict_baseline(name, vectors, labels, vectors, 4)
        assert found.shape == (120, 4)
        np.testing.assert_array_equal(found[:, [1, 3]], 0)
        np.testing.assert_allclose(found.sum(axis=1), 1)


def test_nearest_neighbors_vote_by_the_cube_of_their_cosine() -> None:
    vectors, labels, _ = make_groups()
    known = labels >= 0

    def weigh(distances: np.ndarray) -> np.ndarray:
        weights: np.ndarray = np.maximum(1 - distances, 1e-3) ** 3
        return weights

    expected = KNeighborsClassifier(5, metric="cosine", weights=weigh)
    expected.fit(vectors[known], labels[known])
    found = predict_baseline("nearest neighbors", vectors, labels, vectors, 3)
    np.testing.assert_allclose(found, expected.predict_proba(vectors), atol=1e-5)


def test_label_propagation_solves_its_equation() -> None:
    """The limit of the iteration is (1 − α) (I − α S)⁻¹ Y."""
    vectors, labels, _ = make_groups()
    similarity = cosines(vectors, vectors)
    weights = np.maximum(similarity, 1e-3) ** 3
    np.fill_diagonal(similarity, -2)
    near = np.argsort(-similarity, axis=1)[:, :10]
    graph = np.zeros((120, 120))
    for row, columns in enumerate(near):
        graph[row, columns] = weights[row, columns]
    graph = np.maximum(graph, graph.T)
    degrees = graph.sum(axis=1)
    walk = graph / np.sqrt(degrees[:, None] * degrees)
    given = np.eye(3)[labels] * (labels >= 0)[:, None] / 5  # 5 labels of each class
    spread = 0.1 * np.linalg.solve(np.eye(120) - 0.9 * walk, given)
    spread /= spread.sum(axis=1, keepdims=True)
    asked, _, _ = make_groups(30, seed=1)
    similarity = cosines(asked, vectors)
    near = np.argsort(-similarity, axis=1)[:, :10]
    votes = np.array(
        [(np.maximum(s[n], 1e-3) ** 3) @ spread[n] for s, n in zip(similarity, near, strict=True)]
    )
    expected = votes / votes.sum(axis=1, keepdims=True)
    found = predict_baseline("label propagation", vectors, labels, asked, 3)
    np.testing.assert_allclose(found, expected, atol=5e-3)  # 0.9⁵⁰ of the way is missing


def test_labels_spread_along_a_bent_line_where_others_take_the_shortest_way() -> None:
    angles = np.linspace(0, np.pi, 150)
    first = np.stack([np.cos(angles), np.sin(angles), np.full(150, 0.15)], axis=1)
    vectors = np.concatenate([first, first * [1, 1, -1]]).astype(np.float32)
    truth = np.repeat([0, 1], 150)
    labels = np.full(300, -1)
    labels[[0, 299]] = [0, 1]  # at opposite ends
    right = {
        name: (predict_baseline(name, vectors, labels, vectors, 2).argmax(1) == truth).mean()
        for name in BASELINES
    }
    assert right["label propagation"] == 1
    assert right["nearest neighbors"] < 0.8


@pytest.mark.parametrize("name", BASELINES)
def test_equal_arguments_give_equal_answers(name: str) -> None:
    vectors, labels, truth = make_groups()
    found = predict_baseline(name, vectors, labels, vectors, 3)
    np.testing.assert_array_equal(predict_baseline(name, vectors, labels, vectors, 3), found)
    assert (found.argmax(axis=1) == truth).mean() > 0.6  # chance is 0.33
