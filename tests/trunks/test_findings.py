"""Images to look at, among vectors whose wrong labels, copies and strangers are known."""

import numpy as np

from dualstudent.trunks.findings import find_lookalikes, find_suspects, find_unlike


def make_groups(count: int = 90, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three groups of vectors in 40 dimensions, and the group of each."""
    truth = np.arange(count) % 3
    noise = np.random.default_rng(seed).normal(size=(count, 40))
    return (3 * np.eye(40)[truth] + noise).astype(np.float32), truth


def test_wrong_labels_are_suspect_and_the_surest_come_first() -> None:
    labels = np.array([0, 0, 0, 1, 1, 1, 0, 1])
    probabilities = np.array(
        [
            *([0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.2, 0.8], [0.1, 0.9], [0.4, 0.6]),
            [0.3, 0.7],  # wrong; the labels 1 have 0.8, 0.9, 0.6 and 0.05, less on average
            [0.95, 0.05],  # wrong and sure
        ]
    )
    assert find_suspects(labels, probabilities).tolist() == [7, 6]


def test_unsure_answers_and_unknown_ones_are_not_suspect() -> None:
    labels = np.array([0, 0, 1, 1, 0, 0])
    sure = [[0.95, 0.05], [0.95, 0.05], [0.05, 0.95], [0.05, 0.95]]
    probabilities = np.array([*sure, [0.45, 0.55], [np.nan, np.nan]])
    assert find_suspects(labels, probabilities).tolist() == []
    probabilities[4] = [0.01, 0.99]
    assert find_suspects(labels, probabilities).tolist() == [4]


def test_an_answer_that_no_label_has_is_not_suspect() -> None:
    assert find_suspects(np.array([0, 0]), np.array([[0.1, 0.0, 0.9]] * 2)).tolist() == []


def test_altered_copies_are_found_and_equal_vectors_are_not() -> None:
    vectors, _ = make_groups()
    noise = np.random.default_rng(1).normal(size=(2, 40)).astype(np.float32)
    vectors[50] = vectors[3] + 0.05 * noise[0]
    vectors[9] = vectors[70] + 0.3 * noise[1]
    vectors[20] = vectors[10]
    found = find_lookalikes(vectors)
    assert found.indices.tolist() == [[3, 50], [9, 70]]
    for (a, b), value in zip(found.indices, found.similarity, strict=True):
        x, y = vectors[a].astype(np.float64), vectors[b].astype(np.float64)
        np.testing.assert_allclose(value, x @ y / np.sqrt((x @ x) * (y @ y)), atol=1e-5)


def test_groups_that_are_close_everywhere_are_no_copies() -> None:
    """Half of the nearest vectors have cosines around 0.9, which is usual there."""
    random = np.random.default_rng(0)
    vectors = (2.5 + random.normal(size=(200, 60))).astype(np.float32)
    vectors[100:] = (1.6 + random.normal(size=(100, 60))).astype(np.float32)
    assert len(find_lookalikes(vectors).indices) == 0
    assert len(find_lookalikes(vectors[:1]).indices) == 0


def test_strangers_are_unlike_all_labeled_images() -> None:
    vectors, _ = make_groups()
    strangers = -np.eye(40, dtype=np.float32)[:3].sum(axis=0) * [[1], [2]]
    unlabeled = np.concatenate([make_groups(30, seed=1)[0], strangers.astype(np.float32)])
    rows, similarity = find_unlike(unlabeled, vectors)
    assert set(rows[:2]) == {30, 31}
    assert len(rows) < 6  # 2 % of those that are like the labeled ones
    assert (np.diff(similarity) >= 0).all()
    empty, _ = find_unlike(unlabeled[:0], vectors)
    assert len(empty) == 0
