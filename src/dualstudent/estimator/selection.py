"""Cross-validation with unknown labels: a scorer that skips them, and a splitter that knows them.

With scikit-learn's own, ``scoring="accuracy"`` counts every unknown label as wrong, and a split
takes samples without a label out of the training, where they would be of use.
"""

from collections.abc import Iterator
from inspect import isfunction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import get_scorer
from sklearn.model_selection import BaseCrossValidator, StratifiedKFold
from sklearn.utils import _safe_indexing, check_random_state

from dualstudent.data.arrays import encode_labels, is_unknown
from dualstudent.errors import UserError


class skip_unknown:  # noqa: N801  used like the functions of sklearn.metrics
    """A scorer that leaves out the samples whose label is unknown (−1, None, NaN).

    Args:
        scoring: any scorer of scikit-learn, by name, or a callable (estimator, X, y).

    Example:
        >>> from sklearn.dummy import DummyClassifier
        >>> X, y = [[0], [0], [0], [0]], [1, 1, -1, 0]
        >>> always_one = DummyClassifier(strategy="constant", constant=1).fit(X, y)
        >>> round(skip_unknown("accuracy")(always_one, X, y), 2)
        0.67
    """

    def __init__(self, scoring: Any = "accuracy") -> None:
        if isfunction(scoring) and scoring.__module__.startswith("sklearn.metrics."):
            raise UserError(
                f"skip_unknown({scoring.__name__}): is a metric; use the name of a scorer, such "
                "as 'accuracy', or make_scorer(…)"
            )
        self.scoring = scoring
        self._score = get_scorer(scoring)

    def __call__(self, estimator: Any, X: Any, y: ArrayLike, **named: Any) -> float:
        labels = np.asarray(y)
        known = np.flatnonzero(~is_unknown(labels))
        if not len(known):
            raise UserError("y: all labels are unknown; a score needs at least one known label")
        found = labels[known]
        if found.dtype == object:  # None was among them
            found = np.array(found.tolist())
        of_known = {  # such as sample weights
            key: _safe_indexing(value, known) if np.shape(value)[:1] == labels.shape[:1] else value
            for key, value in named.items()
        }
        return float(self._score(estimator, _safe_indexing(X, known), found, **of_known))

    def __repr__(self) -> str:
        return f"skip_unknown({self.scoring!r})"


class SemiSupervisedKFold(BaseCrossValidator):  # type: ignore[misc]
    """Splits the samples with a known label into k folds, stratified; all others are trained on.

    Each test part has known labels only, so that any scorer is right. In each training part the
    samples without a label come first, then the labeled ones, class by class in turn. So the
    first samples of it are all unlabeled ones and a few labels of every class, which is what
    ``learning_curve`` takes.

    Args:
        n_splits: k, at least 2; every class needs as many labels.
        shuffle: whether the labels are shuffled before they are split.
        random_state: seed, if they are shuffled.

    Example:
        >>> X, y = np.zeros((8, 1)), np.array([0, 0, 1, 1, -1, -1, -1, -1])
        >>> for train, test in SemiSupervisedKFold(n_splits=2).split(X, y):
        ...     print(train, test)
        [4 5 6 7 1 3] [0 2]
        [4 5 6 7 0 2] [1 3]
    """

    def __init__(
        self, n_splits: int = 5, *, shuffle: bool = False, random_state: Any = None
    ) -> None:
        self.n_splits, self.shuffle, self.random_state = n_splits, shuffle, random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return self.n_splits

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield the indices of the training and of the test part of every split."""
        if y is None:
            raise UserError("SemiSupervisedKFold needs y, with −1 where a label is unknown")
        codes = encode_labels(y)[1].numpy()
        known, unknown = np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)
        counts = np.bincount(codes[known])
        if counts.min() < self.n_splits:
            raise UserError(
                f"n_splits = {self.n_splits}: a class has only {counts.min()} known label(s); use "
                "fewer splits, or label more"
            )
        seed = self.random_state if self.shuffle else None
        folds = StratifiedKFold(self.n_splits, shuffle=self.shuffle, random_state=seed)
        random = check_random_state(seed) if self.shuffle else None
        for train, test in folds.split(known, codes[known]):
            order = train if random is None else random.permutation(train)
            turns = _take_turns(codes[known[order]])
            yield np.concatenate((unknown, known[order[turns]])), known[test]


def _take_turns(codes: NDArray[np.int64]) -> NDArray[np.intp]:
    """Order samples so that each class comes once, then each once more.

    Example:
        >>> _take_turns(np.array([0, 0, 0, 1, 1])).tolist()
        [0, 3, 1, 4, 2]
    """
    turn = np.zeros(len(codes), np.int64)
    for each in np.unique(codes):
        turn[codes == each] = np.arange((codes == each).sum())
    return np.lexsort((codes, turn))
