"""What is learned while somebody labels, from features alone: within a second or two.

Labels spread along a graph of similar images. On the features of a pretrained trunk, logistic
regression has a say as well: the two are combined by the geometric mean of their probabilities.
Which images to ask for next is decided as ``dualstudent label`` does it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA

from dualstudent.calibration import Threshold
from dualstudent.data.features import Standardization
from dualstudent.generators import derive_seed
from dualstudent.labeling.ranking import CONSIDERED, select_for_labeling
from dualstudent.teach.estimate import Estimate, find_trust
from dualstudent.trunks.baselines import BASELINES, predict_baseline
from dualstudent.trunks.findings import find_suspects
from dualstudent.trunks.propagation import NeighborGraph, Probabilities, Vectors

FOLDS = 5
_SAMPLE_FOLDS = 10  # as many as an estimate has images at least: so each of these is hidden alone
_COMPONENTS = 128  # that neighbors are searched by
_BEGINNING = 10  # labels, before which images are spread over the features
_SPREAD = 30  # clusters
_FIT_BY = 10_000  # images at most
_LEAST = 1e-4  # probability; no answer rules out a class
_LEAST_DOUBTED = 20  # labels, before which nobody can say which one is odd


@dataclass(frozen=True)
class Question:
    """What is to be learned.

    Attributes:
        version: of the labels.
        labels: number of an image → its class, in [0, C).
        classes: names of the C classes.
        sample: numbers of the labeled images that measure the model.
        askable: numbers of the images whose label may be asked for, without the sample.
        precision: wanted share of right answers among the trusted ones.
    """

    version: int
    labels: Mapping[int, int]
    classes: tuple[str, ...]
    sample: frozenset[int]
    askable: frozenset[int]
    precision: float = 0.95


@dataclass(frozen=True)
class Answer:
    """What was learned, about n images.

    Attributes:
        version: of the labels.
        labels: how many there were.
        classes: names of the classes.
        numbers: (n,) int64, the images.
        predicted: (n,) int64, the class of each; empty if there is no model yet.
        confidence: (n,) its probability.
        order: numbers of the images to ask for next, the most worth first.
        suspects: (number, class it seems to be), the surest first.
        estimate: accuracy on the sample; None if nothing was measured.
        trust: confidence from which on predictions are trusted; None if there is none.
        seconds: of CPU time that it took.
    """

    version: int
    labels: int
    classes: tuple[str, ...]
    numbers: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]
    order: tuple[int, ...]
    suspects: tuple[tuple[int, int], ...] = ()
    estimate: Estimate | None = None
    trust: Threshold | None = None
    seconds: float = 0.0


class Superseded(Exception):
    """There are newer labels; what has been begun is of no use."""


class Learner:
    """Learns from the features of images; they may come piece by piece.

    Args:
        uses_line: whether logistic regression has a say.
    """

    def __init__(self, uses_line: bool) -> None:
        self._uses_line = uses_line
        self._numbers = np.empty(0, np.int64)

    def use(self, numbers: NDArray[np.int64], features: Vectors) -> None:
        """Use the features (n, d) of n ≥ 2 images from now on, instead of those before."""
        some = features[:_FIT_BY]
        scale = Standardization.measure_jointly(some)
        vectors = scale.apply(features).numpy()
        self.vectors = vectors
        if vectors.shape[1] > _COMPONENTS < len(some):
            reduce = PCA(_COMPONENTS, random_state=0).fit(vectors[: len(some)])
            vectors = reduce.transform(vectors).astype(np.float32)
        self._numbers, self._short, self._graph = numbers, vectors, NeighborGraph(vectors)
        self._spread: list[int] | None = None

    @property
    def images(self) -> int:
        """Number of images whose features are used."""
        return len(self._numbers)

    def learn(self, question: Question, check: Callable[[], None] = lambda: None) -> Answer:
        """Learn from labels, judge the sample, and choose what to ask for next.

        Args:
            question: the labels.
            check: is called between the steps; may raise :class:`Superseded`.
        """
        started = time.process_time()
        labels = np.array([question.labels.get(number, -1) for number in self._numbers.tolist()])
        known = np.flatnonzero(labels >= 0)
        askable = np.flatnonzero(np.isin(self._numbers, list(question.askable)))
        if len(np.unique(labels[known])) < 2:
            order = self._spread_out(askable, known)
            said = (self._numbers, np.empty(0, np.int64), np.empty(0), self._name(order))
            return Answer(question.version, len(known), question.classes, *said)
        classes = len(question.classes)
        found = self.predict(labels, classes)
        check()
        in_sample = np.isin(self._numbers[known], list(question.sample))
        judged = self._judge(labels, known, in_sample, classes, check)
        truth = labels[known]
        right = judged.argmax(axis=1) == truth
        suspects = self._doubt(truth, judged, in_sample)
        confidence = found.max(axis=1)
        order = (
            self._spread_out(askable, known)
            if len(known) < _BEGINNING
            else self._choose(askable, known, find_doubt(found))
        )
        return Answer(
            question.version,
            len(known),
            question.classes,
            self._numbers,
            found.argmax(axis=1),
            confidence,
            self._name(order),
            tuple((int(self._numbers[known[i]]), int(judged[i].argmax())) for i in suspects),
            Estimate.count(len(known), right[in_sample]),
            find_trust(judged[in_sample], truth[in_sample], question.precision),
            time.process_time() - started,
        )

    def predict(self, labels: NDArray[np.int64], classes: int) -> Probabilities:
        """Predict all images (n, C) from labels (n,), −1 where unknown, of two classes or more."""
        spread = self._graph.spread(labels, classes)
        if not self._uses_line or len(np.unique(labels[labels >= 0])) < 2:
            return spread
        line = predict_baseline(BASELINES[0], self.vectors, labels, self.vectors, classes)
        return combine(spread, line)

    def _judge(
        self,
        labels: NDArray[np.int64],
        known: NDArray[np.int64],
        in_sample: NDArray[np.bool_],
        classes: int,
        check: Callable[[], None],
    ) -> Probabilities:
        """Predict every labeled image (m, C) by a model that has not seen its label.

        Images of the sample are in ten parts, by turns, and the others in five more: so little is
        missing where the sample is judged, and the model is hardly worse than the one with all
        labels. An image stays in its part as others are labeled.
        """
        part = np.array([derive_seed(int(self._numbers[i]), "part") % FOLDS for i in known])
        part += _SAMPLE_FOLDS
        part[in_sample] = np.arange(in_sample.sum()) % _SAMPLE_FOLDS
        judged = np.full((len(known), classes), 1 / classes)
        for each in range(_SAMPLE_FOLDS + FOLDS):
            hidden = known[part == each]
            others = labels.copy()
            others[hidden] = -1
            if len(hidden) and (others >= 0).any():
                judged[part == each] = self.predict(others, classes)[hidden]
            check()
        return judged

    @staticmethod
    def _doubt(
        truth: NDArray[np.int64], judged: Probabilities, in_sample: NDArray[np.bool_]
    ) -> list[int]:
        """Find suspect labels, by position.

        None of the sample: to look again only where the model disagrees would please it. And none
        that is the only one of its class, as a model without it knows no such class.
        """
        if len(truth) < _LEAST_DOUBTED:
            return []
        alone = np.bincount(truth)[truth] == 1
        found = find_suspects(truth, judged).tolist()
        return [place for place in found if not in_sample[place] and not alone[place]]

    def _choose(
        self, askable: NDArray[np.int64], known: NDArray[np.int64], doubt: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Choose as ``dualstudent label`` does."""
        considered = askable[np.argsort(-doubt[askable], kind="stable")[:CONSIDERED]]
        if len(considered) == 0:
            return considered
        vectors = (torch.from_numpy(self._short[rows]) for rows in (considered, known))
        chosen = select_for_labeling(torch.from_numpy(doubt[considered]), *vectors)
        found: NDArray[np.int64] = considered[chosen.numpy()]
        return found

    def _spread_out(
        self, askable: NDArray[np.int64], known: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Choose the middle of each cluster, of large clusters first."""
        if self._spread is None:
            count = min(_SPREAD, len(self._short))
            clusters = MiniBatchKMeans(count, n_init=3, batch_size=2048, random_state=0)
            away = clusters.fit_transform(self._short)
            sizes = np.bincount(clusters.labels_, minlength=count)
            middles = away.argmin(axis=0)[np.argsort(-sizes, kind="stable")]
            self._spread = list(dict.fromkeys(middles.tolist()))
        allowed = set(askable.tolist())
        return np.array([row for row in self._spread if row in allowed], np.int64)

    def _name(self, rows: NDArray[np.int64]) -> tuple[int, ...]:
        return tuple(self._numbers[rows].tolist())


def find_doubt(probabilities: Probabilities) -> NDArray[np.float64]:
    """Return (n,) in [0, 1]: (1 − distance of the two largest probabilities)², of (n, C).

    On validation photos this needs fewer labels than 1 − the largest probability, which is also
    low for images unlike all others; the square asks less for images that are nearly decided.
    """
    second, first = np.partition(probabilities, -2, axis=1)[:, -2:].T
    doubt: NDArray[np.float64] = (1 - (first - second)) ** 2
    return doubt


def combine(first: Probabilities, second: Probabilities) -> Probabilities:
    """Return the geometric mean of class probabilities (n, C), scaled to sum 1."""
    product = np.sqrt(np.maximum(first, _LEAST) * np.maximum(second, _LEAST))
    scaled: Probabilities = product / product.sum(axis=1, keepdims=True)
    return scaled
