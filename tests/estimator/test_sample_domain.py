"""``fit(X, y, sample_domain=…)``: another domain, with and without labels of it."""

import copy
import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dualstudent import DualStudentClassifier, Trainer, UserError
from dualstudent.networks.domains import BatchNormByDomain

PER_DOMAIN, FEATURES = 300, 6


def two_domains(seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Three clusters; in the target all are moved further than they are apart."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 3, 2 * PER_DOMAIN)
    X = 3.0 * np.eye(3, FEATURES)[y] + generator.normal(size=(len(y), FEATURES))
    domain = np.repeat([1, -1], PER_DOMAIN)
    X[domain < 0] += 3.0 * np.roll(np.eye(3, FEATURES)[0], 1)
    return X, y, domain


def adapt(y: NDArray[Any], X: NDArray[Any], **fit: Any) -> DualStudentClassifier:
    classifier = DualStudentClassifier(epochs=20, random_state=0, device="cpu")
    return classifier.fit(X, y, **fit)


def test_batch_norm_is_by_domain_unless_told_otherwise() -> None:
    X, y, domain = two_domains()
    hidden = np.where(domain < 0, -1, y)
    settings: dict[str, Any] = {"epochs": 1, "random_state": 0, "device": "cpu"}
    chosen = []
    for network in (None, {"batch_norm": "together"}, {"norm": "layer"}):
        classifier = DualStudentClassifier(**settings, network_settings=network)
        fitted = classifier.fit(X, hidden, sample_domain=domain)
        chosen.append(fitted.recipe_["network"]["batch_norm"])
    assert chosen == ["by-domain", "together", "together"]
    of_one_domain = DualStudentClassifier(**settings).fit(X, hidden)
    assert of_one_domain.recipe_["network"]["batch_norm"] == "together"


@pytest.mark.learns
def test_it_adapts_without_a_label_of_the_target() -> None:
    X, y, domain = two_domains()
    target = domain < 0
    hidden = np.where(target, -1, y)
    adapted = adapt(hidden, X, sample_domain=domain).score(X[target], y[target])
    plain = adapt(y[~target], X[~target]).score(X[target], y[target])
    assert plain < 0.85  # 0.72
    assert adapted > 0.85  # 0.95


def test_labels_of_the_target_count_and_are_kept() -> None:
    X, y, domain = two_domains()
    some = np.where((domain > 0) | (np.arange(len(y)) % 20 == 0), y, -1)
    classifier = adapt(some, X, sample_domain=domain)
    known = some >= 0
    assert (classifier.transduction_[known] == y[known]).all()


def test_samples_of_the_source_are_judged_by_its_own_statistics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep = DualStudentClassifier._keep_network

    def keep_with_opposite_statistics(classifier: DualStudentClassifier, trainer: Trainer) -> None:
        """Let the one hidden layer be far above zero by one domain, and far below by the other."""
        for layer in trainer.method.modules():
            if isinstance(layer, BatchNormByDomain):
                layer.source_mean.fill_(-1e4)
                layer.running_mean.fill_(1e4)
        keep(classifier, trainer)

    monkeypatch.setattr(DualStudentClassifier, "_keep_network", keep_with_opposite_statistics)
    X, y, domain = two_domains()
    hidden = np.where((domain < 0) | (np.arange(len(y)) >= 200), -1, y)
    order = np.random.default_rng(1).permutation(len(y))  # the domains are mixed
    classifier = DualStudentClassifier(
        epochs=1, random_state=0, device="cpu", network_settings={"hidden": [8]}
    ).fit(X[order], hidden[order], sample_domain=domain[order])
    network = copy.deepcopy(classifier._network)
    for layer in network.modules():
        if isinstance(layer, BatchNormByDomain):  # the source in the place of the target
            layer.running_mean.copy_(layer.source_mean)
            layer.running_var.copy_(layer.source_var)
    by_target = classifier.predict(X[order])
    classifier._network = network
    expected = np.where(domain[order] > 0, classifier.predict(X[order]), by_target)
    unknown = hidden[order] < 0
    assert (classifier.transduction_[unknown] == expected[unknown]).all()
    of_source = unknown & (domain[order] > 0)
    assert (expected[of_source] != by_target[of_source]).all()


OF_THE_TARGET = ["shot", "self-ensembling", "dual-student+shot"]


def few_of_target(count: int, method: str, **settings: Any) -> DualStudentClassifier:
    """Fit 60 labels and 240 other samples of the source, and a few of the target."""
    X, y, domain = two_domains()
    known = np.where(np.arange(len(y)) < 60, y, -1)
    rows = slice(PER_DOMAIN + count)
    classifier = DualStudentClassifier(
        method=method, epochs=4, random_state=0, device="cpu", **settings
    )
    return classifier.fit(X[rows], known[rows], sample_domain=domain[rows])


@pytest.mark.parametrize(
    ("count", "method"),
    [*itertools.product((2, 3, 20), OF_THE_TARGET), (1, "dual-student+shot")],
)
def test_a_few_samples_of_the_target_beside_many_of_the_source(count: int, method: str) -> None:
    classifier = few_of_target(count, method)
    terms = [term for each in classifier.history_ for term in each["loss"]]
    assert np.isfinite([value for each in terms for value in each.values()]).all()
    assert classifier.n_iter_ == 4  # one step each, as the samples of the target are one batch


@pytest.mark.parametrize("method", ["shot", "self-ensembling", "ict"])
def test_batch_norm_needs_two_samples_of_the_target(method: str) -> None:
    with pytest.raises(UserError, match=r"needs 2 of them or more .* of the target"):
        few_of_target(1, method)
    few_of_target(1, method, network_settings={"norm": "layer"})


def test_two_domains_are_needed() -> None:
    X, y, _ = two_domains()
    with pytest.raises(UserError, match="the target has no samples"):
        adapt(y, X, sample_domain=np.ones(len(y)))


def test_a_class_that_the_source_lacks_is_named_as_the_user_names_it() -> None:
    X, y, domain = two_domains()
    names = np.array(["cat", "dog"])[(y == y.max()).astype(int)]
    names[(domain > 0) & (names == "dog")] = "cat"
    with pytest.raises(UserError, match="no sample of the source has the label dog"):
        DualStudentClassifier().fit(X, names, sample_domain=domain)
