"""Trains runs on a Ray cluster: a laptop, machines with an address, or Kubernetes.

Each run is a task with the CPUs and GPUs that it needs. If a machine is lost, Ray starts its runs
again on another one, where they continue from their checkpoints.
"""

import os
import platform
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from tempfile import mkstemp
from typing import Any, Self

from dualstudent.errors import UserError
from dualstudent.pool import train_or_explain
from dualstudent.recipes.schema import Recipe

_MOST_RETRIES = 10  # of a run whose machine was lost
_SECONDS_TO_STOP = 60.0  # for a checkpoint of every run

Resources = dict[str, float]


class RayCluster:
    """The cluster that ``RAY_ADDRESS`` names, or a new one on this machine.

    Leaving the block stops all runs with a checkpoint.

    Args:
        recipes: name → recipe of a run that will be trained.
        folder: folder of the runs, which all machines must share.

    Raises:
        UserError: if Ray is missing, cannot be reached, or no machine has room for a run.
    """

    def __init__(self, recipes: Mapping[str, Recipe], folder: Path) -> None:
        try:
            import ray
        except ImportError as error:
            raise UserError(
                "Ray is not installed; install the extra 'ray' of dualstudent"
            ) from error
        self._ray: Any = ray
        self._is_own = not ray.is_initialized()
        if self._is_own:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would call home
            try:
                ray.init(log_to_driver=False, configure_logging=False)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise UserError(f"RAY_ADDRESS: no Ray cluster answers ({error})") from error
        self._tasks: list[Any] = []
        self._mark: Path | None = None
        try:
            self._check_room(recipes)
        except UserError:
            self.__exit__()
            raise
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, mark = mkstemp(dir=folder.resolve(), prefix=".seen-by-all-machines-")
        os.close(descriptor)
        self._mark = Path(mark)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for task in self._tasks:
            self._ray.cancel(task, recursive=False)  # as Ctrl-C, which leaves a checkpoint
        if self._tasks:
            self._ray.wait(self._tasks, num_returns=len(self._tasks), timeout=_SECONDS_TO_STOP)
        if self._mark is not None:
            self._mark.unlink(missing_ok=True)
        if self._is_own:
            self._ray.shutdown()

    def submit(self, recipe: Recipe, folder: Path) -> Future[str]:
        """Train or resume a run as soon as there is room; the result is an error, or empty."""
        needs = self._find_needs(recipe)
        task = self._ray.remote(
            num_cpus=needs["CPU"], num_gpus=needs["GPU"], max_retries=_MOST_RETRIES
        )(_train)
        reference = task.remote(recipe.model_dump_json(), str(folder.resolve()), str(self._mark))
        self._tasks.append(reference)
        found: Future[str] = reference.future()
        return found

    def _check_room(self, recipes: Mapping[str, Recipe]) -> None:
        self._has_gpus = "GPU" in self._ray.cluster_resources()
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        for name, recipe in recipes.items():
            _check_room(name, self._find_needs(recipe), machines)

    def _find_needs(self, recipe: Recipe) -> Resources:
        """What a run needs on one machine."""
        count, device = recipe.device.processes, recipe.device.accelerator
        on_gpus = device == "cuda" or (device == "auto" and self._has_gpus)
        readers = recipe.data.workers or 0
        return {"CPU": count * (1 + readers), "GPU": count if on_gpus else 0}


def _check_room(name: str, needs: Resources, machines: list[Resources]) -> None:
    if any(all(there.get(key, 0) >= each for key, each in needs.items()) for there in machines):
        return
    best = ", ".join(f"{there.get('CPU', 0):g} and {there.get('GPU', 0):g}" for there in machines)
    raise UserError(
        f"{name}: needs {needs['CPU']:g} CPUs and {needs['GPU']:g} GPUs on one machine, but those "
        f"of the Ray cluster have {best}; set device.processes and device.accelerator, or add one"
    )


def _train(recipe: str, folder: str, mark: str) -> str:
    """Train a run on a machine of the cluster; return what went wrong."""
    import torch

    if not Path(mark).is_file():
        return (
            f"{platform.node()} does not see {Path(mark).parent}; choose an --out on a disk that "
            "all machines of the cluster share"
        )
    torch.set_num_threads(1)
    return train_or_explain(recipe, Path(folder))
