"""Several processes share a run: how they find each other, agree, and end together.

torchrun or srun start them, on any number of machines; for one machine, ``device.processes``
lets torch start them here. The leader (rank 0) writes all files and shows progress. The others
run the same loop; see :mod:`~dualstudent.training.rows` for what is divided among them.
"""

import json
import logging
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.utilities.exceptions import MisconfigurationException
from torch import distributed
from torch.distributed import DistError, Store  # type: ignore[attr-defined]

from dualstudent.batch import WHOLE, Shard
from dualstudent.data.batching.loader import check_divides
from dualstudent.errors import UnheardError, UserError
from dualstudent.methods import find_method
from dualstudent.processes import World, find_world
from dualstudent.recipes.schema import DeviceSettings, Recipe
from dualstudent.training.meeting import (
    check_size,
    has_met,
    list_ranks,
    meet,
    share_machine,
    start_followers,
)

_WHO, _ERROR, _ENDS = "who", "error", "ends"
_SECONDS_TO_ANSWER = 3.0  # after a process was lost, for the others to say that they are there
_left: list[object] = []  # the group of processes that was left last


def build_fabric(
    settings: DeviceSettings, world: World | None = None, steady: bool = True
) -> Fabric:
    """Set up device and precision, for this process alone or as one of ``world``.

    Args:
        settings: device and precision.
        world: which process this is.
        steady: whether the same parameters get a gradient in all steps, which is faster.

    Raises:
        UserError: if the device is not available.
    """
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    here = 1 if world is None else world.local_size
    try:
        return Fabric(
            accelerator=settings.accelerator,
            devices=here,
            num_nodes=1 if world is None else world.size // here,
            strategy=(
                "auto"
                if world is None
                else DDPStrategy(static_graph=steady, find_unused_parameters=not steady)
            ),
            precision=settings.precision,
            # Said explicitly: otherwise Fabric guesses by what else is installed.
            plugins=LightningEnvironment() if world is None else TorchElasticEnvironment(),
        )
    except (MisconfigurationException, RuntimeError, ValueError) as error:
        many, advice = "", "use 'auto' or 'cpu'"
        if here > 1:
            many = f" with device.processes = {here}"
            advice = "use fewer, one for each GPU, or the accelerator 'cpu'"
        raise UserError(
            f"device.accelerator = {settings.accelerator!r}{many} is not available here; {advice}"
        ) from error


class Team:
    """The processes that share a run; a single one, too.

    Args:
        fabric: device and precision of this process.
        shard: its part of every batch.
        store: texts that all processes see; None for a single one.
    """

    def __init__(self, fabric: Fabric, shard: Shard = WHOLE, store: Store | None = None) -> None:
        self.fabric, self.shard, self._store = fabric, shard, store
        self._has_agreed = store is None

    @property
    def leads(self) -> bool:
        """Whether this process writes the files."""
        return self.shard.rank == 0

    def agree(self, facts: Mapping[str, str]) -> None:
        """Check that all processes know the same facts, before they train together.

        Args:
            facts: what → a description of it, in every process.

        Raises:
            UserError: in all processes, if one has other facts or has failed before.
        """
        self._has_agreed = True
        compare_facts(self.shard.rank, facts)

    def lead(self, work: Callable[[], object]) -> None:
        """Do something in the leader only; the others wait for it.

        Raises:
            UserError: in all processes, if it fails.
        """
        failure: Exception | None = None
        if self.leads:
            try:
                work()
            except (UserError, OSError) as error:
                failure = error
        said = gather_texts("" if failure is None else str(failure))[0]
        if failure is not None:
            raise failure
        if said:
            raise UserError(said)

    def check_all(self, problem: str) -> None:
        """Raise a UserError in all processes if one has a problem: "rank 3 on node7 …"."""
        said = gather_texts(problem and f"{_name(self.shard.rank)} {problem}")
        if problems := [each for each in said if each]:
            raise UserError(problems[0])

    def explain(self, error: Exception) -> Exception:
        """Tell the others about an error, or find out which of them is lost."""
        if self._store is None:
            return error
        rank, known = self.shard.rank, isinstance(error, UserError | OSError)
        try:
            if known and not self._has_agreed:
                self.agree({_ERROR: str(error)})
            if known:
                self._store.set(f"{_ERROR}/{rank}", f"{_name(rank)}: {error}")
            self._store.set(f"{_ENDS}/{rank}", "")
            # torch has a type of error for some of its back ends only.
            if isinstance(error, DistError) or "gloo" in str(error):
                return self._find_lost(self._store)
        except UserError as told:
            return told
        except RuntimeError:  # the leader had the store
            if not known:
                return UnheardError(_describe_lost([0], self.shard.world_size))
        return error

    def _find_lost(self, store: Store) -> UserError:
        """Find who has ended: those that report an error, or do not answer any more."""
        ranks = range(self.shard.world_size)
        lost = _wait_for_ends(store, ranks)
        for rank in ranks:
            if store.check([f"{_ERROR}/{rank}"]):
                return UserError(store.get(f"{_ERROR}/{rank}").decode())
        kind = UnheardError if 0 in lost else UserError
        return kind(_describe_lost(lost, len(ranks)))

    def part(self) -> None:
        """End the connections; if there was an error, the others still learn of it."""
        _disconnect()
        if self.leads and self._store is not None and self._store.check([f"{_ENDS}/0"]):
            _wait_for_ends(self._store, range(self.shard.world_size))


@contextmanager
def join_team(recipe: Recipe, follow: Callable[[], object]) -> Iterator[Team]:
    """Join the processes that share this run; they part at the end of the block.

    Args:
        recipe: ``device.processes`` are started here if nobody has started any.
        follow: what those that are started here do, that is, call this function, too.

    Raises:
        UserError: in all processes, if one is missing or fails in the block.
    """
    with ExitStack() as stack:
        settings, world = recipe.device, find_world()
        check_size(settings, world)
        for stage in recipe.split_stages():  # before others are started, or waited for
            check_divides(stage.batch, world.size if world else settings.processes)
        if world is None and settings.processes > 1:
            stack.enter_context(start_followers(settings.processes - 1, follow))
            world = find_world()
        if world is None or world.size == 1:
            yield Team(build_fabric(settings))
            return
        stack.enter_context(share_machine(world))
        store = meet(world, settings)
        stack.callback(_disconnect)
        steady = all(find_method(stage.method).steady for stage in recipe.split_stages())
        fabric = build_fabric(settings, world, steady)
        fabric.launch()
        team = Team(fabric, Shard(world.rank, world.size), store)
        stack.callback(team.part)
        try:
            yield team
        except Exception as error:
            explained = team.explain(error)
            if explained is error:
                raise
            raise explained from error


def settle(error: UserError) -> UserError:
    """Tell the other processes about an error that happened before they met.

    Returns:
        What the leader should say about it.
    """
    world = find_world()
    if world is None or world.size == 1 or has_met():
        return error
    try:
        meet(world, DeviceSettings(accelerator="cpu"))
        compare_facts(world.rank, {_ERROR: str(error)})
    except UserError as told:
        return told
    finally:
        _disconnect()
    return error


def compare_facts(rank: int, facts: Mapping[str, str]) -> None:
    """Check that all processes know the same facts.

    Args:
        rank: of this process.
        facts: what → a description of it; ``error`` → why this process cannot go on.

    Raises:
        UserError: in all processes, if one has an error, or other facts than the first.
    """
    every = [json.loads(text) for text in gather_texts(json.dumps({_WHO: _name(rank), **facts}))]
    for known in every:
        if _ERROR in known:
            who = "" if known is every[0] else f"{known[_WHO]}: "
            raise UserError(who + known[_ERROR])
    for known in every:
        for fact in facts:
            if known[fact] != every[0][fact]:
                raise UserError(
                    f"{known[_WHO]} has another {fact} than {every[0][_WHO]}; all processes need "
                    "the same command, files and versions"
                )


def gather_texts(text: str) -> list[str]:
    """Gather a text of each process; only the own one without others."""
    if not distributed.is_initialized():
        return [text]
    own = torch.frombuffer(bytearray(text.encode() + b"\0"), dtype=torch.uint8)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(distributed.get_world_size())]
    distributed.all_gather(sizes, torch.tensor([len(own)]))
    padded = torch.zeros(int(max(sizes)), dtype=torch.uint8)
    padded[: len(own)] = own
    every = [torch.empty_like(padded) for _ in sizes]
    distributed.all_gather(every, padded)
    return [bytes(each.tolist()).rstrip(b"\0").decode() for each in every]


def reduce_max(fabric: Fabric, numbers: list[int]) -> list[int]:
    """Return the elementwise maximum over all processes."""
    if fabric.world_size == 1:
        return numbers
    values = torch.tensor(numbers, device=fabric.device)
    distributed.all_reduce(values, distributed.ReduceOp.MAX)
    largest: list[int] = values.tolist()
    return largest


def _disconnect() -> None:
    """Leave the group of processes, which is kept in memory until the next one is left.

    Torch deadlocks if it frees a group while its threads still release the tensors of the last
    operation: they wait for the interpreter, which waits for them.
    """
    if distributed.is_initialized():
        group = distributed.group.WORLD
        distributed.destroy_process_group()
        _left[:] = [group]


def _wait_for_ends(store: Store, ranks: Sequence[int]) -> list[int]:
    """Wait until all processes know that the run ends; return those that do not answer."""
    deadline, silent = time.monotonic() + _SECONDS_TO_ANSWER, list(ranks)
    while silent and time.monotonic() < deadline:
        silent = [rank for rank in silent if not store.check([f"{_ENDS}/{rank}"])]
        time.sleep(0.05 if silent else 0)
    return silent


def _describe_lost(ranks: list[int], size: int) -> str:
    lost = list_ranks(ranks) or "the connection"
    return f"{lost} of {size} processes was lost; go on from the last checkpoint by resume"


def _name(rank: int) -> str:
    return f"rank {rank} on {socket.gethostname()}"
