"""The figures of a finished run, by an honest protocol."""

from statistics import fmean
from typing import Any

from dualstudent.training.run import versions


def summarize_metrics(
    metrics: list[dict[str, Any]], headline: list[str], seconds: float
) -> dict[str, Any]:
    """What a run achieved.

    The result is the mean over the headline networks at the last epoch. The best epoch and
    student on the test set, which is how the paper's authors reported, chooses a model by its
    test error; it stands beside the result, marked as that. Without a test set both are None.
    """
    last = metrics[-1]
    errors = [last["test"][name]["error"] for name in headline if last["test"]]
    every = [
        figures["error"]
        for record in metrics
        for name, figures in record["test"].items()
        if name in headline
    ]
    return {
        "error": fmean(errors) if errors else None,
        "headline": headline,
        "networks": last["test"],
        "chosen_on_test": {
            "note": "best epoch and student by test error, as the authors reported; not honest",
            "error": min(every, default=None),
        },
        "epochs": last["epoch"],
        "steps": last["step"],
        "seconds": round(seconds, 1),
        "versions": versions(),
    }
