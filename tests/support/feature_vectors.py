"""A run of seconds on feature vectors: the pixels of digits, handed over from Python."""

import numpy as np
from sklearn.datasets import load_digits

from dualstudent import FeaturePerturbation, PreparedData, load_recipe, prepare_arrays


def vectors(tested: bool = True) -> PreparedData:
    X, y = load_digits(return_X_y=True)
    few = np.where(np.arange(600) < 60, y[:600], -1)
    test = (X[600:800], y[600:800]) if tested else None
    return prepare_arrays(X[:600], few, test=test, perturbation=FeaturePerturbation(noise=0.5))


MLP = load_recipe("digits", ["network.name=mlp", "schedule.epochs=2", "batch.size=128"])
