"""How the processes of a run find each other, whoever has started them."""

import os
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from torch import distributed
from torch.distributed import (  # type: ignore[attr-defined]  # torch does not say so
    DistError,
    PrefixStore,
    Store,
    TCPStore,
)
from torch.multiprocessing.spawn import start_processes

from dualstudent.errors import UnheardError, UserError
from dualstudent.parallel import count_cores, main_module_left_out
from dualstudent.processes import ADDRESS, LOCAL_RANK, LOCAL_SIZE, PORT, RANK, SIZE, World
from dualstudent.recipes.schema import DeviceSettings

_LONGEST_WAIT = timedelta(minutes=30)  # of a process for another one, such as one that evaluates


_has_met = False


def has_met() -> bool:
    """Return whether this process has tried to meet the others."""
    return _has_met


def check_size(settings: DeviceSettings, world: World | None) -> None:
    """Check that as many processes were started as the recipe asks for.

    Raises:
        UserError: otherwise.
    """
    asked = settings.nodes * settings.processes
    if world is None and settings.nodes > 1:
        raise UserError(
            f"device.nodes = {settings.nodes} needs processes on every machine; start them with "
            "torchrun or srun"
        )
    if world is not None and asked not in (1, world.size):
        raise UserError(
            f"device.nodes = {settings.nodes} times device.processes = {settings.processes} is "
            f"{asked}, but {world.launcher} started {world.size}; leave both out, or correct them"
        )


def meet(world: World, settings: DeviceSettings) -> Store:
    """Wait for all processes and connect them.

    Returns:
        A store that all of them read and write.

    Raises:
        UserError: if some are missing after ``device.start_limit``; the message names them.
        UnheardError: if this process cannot reach the leader.
    """
    global _has_met  # noqa: PLW0603
    _has_met = True
    limit, address = settings.start_limit, find_address()
    # The agent of torchrun serves already.
    serves = world.leads and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        if not serves:
            _wait_for_server(address, limit)
        whole = TCPStore(
            *address,
            world.size,
            serves,
            timedelta(seconds=limit),
            wait_for_workers=False,
            multi_tenant=True,
        )
        # It may still hold what processes wrote before torchrun restarted them, or in an earlier
        # run of the same program.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = PrefixStore(f"attempt {attempt} of {world.size}", whole)
        meeting = store.add(f"meetings/{world.rank}", 1)  # on this store, equal in all processes
        store = PrefixStore(f"meeting {meeting}", store)
        store.set(f"arrived/{world.rank}", socket.gethostname())
        if world.leads:
            store.set("missing", _wait_for_all(store, world, limit))
        store.wait(["missing"], timedelta(seconds=2 * limit))
        missing = store.get("missing").decode()
    except (DistError, OSError, RuntimeError, ValueError) as error:
        where = f"{address[0]}:{address[1]} (MASTER_ADDR, MASTER_PORT)"
        raise UnheardError(
            f"rank 0 cannot listen at {where}; choose an address of its machine and a free port"
            if serves
            else f"rank {world.rank} does not reach rank 0 at {where} within device.start_limit = "
            f"{limit:g} s; start it, with a free port"
        ) from error
    if missing:
        raise UserError(
            f"{missing} of {world.size} did not arrive within device.start_limit = {limit:g} s; "
            "start all of them, with the same MASTER_ADDR and MASTER_PORT"
        )
    try:
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if settings.gpu == "cuda" else "gloo",
            store=PrefixStore("group", store),
            rank=world.rank,
            world_size=world.size,
            timeout=_LONGEST_WAIT,
        )
    except RuntimeError as error:
        raise UserError(
            f"rank {world.rank} does not reach all others, though they have arrived; is there a "
            "firewall, or another network (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME)?"
        ) from error
    return store


def _wait_for_server(address: tuple[str, int], limit: float) -> None:
    """Wait until somebody listens at ``address``; torch would print its stack meanwhile.

    Raises:
        OSError: if nobody does.
    """
    deadline = time.monotonic() + limit
    while True:
        left = deadline - time.monotonic()
        try:
            return socket.create_connection(address, max(left, 0.1)).close()
        except OSError:
            if left <= 0:
                raise
            time.sleep(0.1)


def _wait_for_all(store: Store, world: World, limit: float) -> str:
    """Wait until all have arrived; name those that have not."""
    deadline, missing = time.monotonic() + limit, list(range(world.size))
    while missing and time.monotonic() < deadline:
        missing = [rank for rank in missing if not store.check([f"arrived/{rank}"])]
        time.sleep(0.05 if missing else 0)
    return list_ranks(missing)


def list_ranks(ranks: list[int]) -> str:
    """List ranks in words.

    Example:
        >>> list_ranks([1, 3]), list_ranks([])
        ('ranks 1, 3', '')
    """
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else ""


def find_address() -> tuple[str, int]:
    """Find where the leader is: MASTER_ADDR and MASTER_PORT, or the first node of srun.

    Raises:
        UserError: if nothing says it.
    """
    nodes = os.environ.get("SLURM_STEP_NODELIST")
    address, port = os.environ.get(ADDRESS), os.environ.get(PORT)
    if address is None and nodes is not None:
        address = SLURMEnvironment.resolve_root_node_address(nodes)
    if port is None and nodes is not None:  # every process knows these numbers
        step = 10 * int(os.environ["SLURM_JOB_ID"]) + int(os.environ["SLURM_STEP_ID"])
        port = str(20_000 + step % 10_000)
    if not address or port is None or not port.isdecimal() or int(port) >= 2**16:
        raise UserError(
            f"{RANK} and {SIZE} are set, but {ADDRESS} = {address!r} and {PORT} = {port!r} do not "
            "say where rank 0 is; set them, or use torchrun"
        )
    return address, int(port)


@contextmanager
def share_machine(world: World) -> Iterator[None]:
    """In the block, the process uses its share of the cores, and torch knows its rank."""
    threads = torch.get_num_threads()
    known = {RANK: str(world.rank), SIZE: str(world.size), LOCAL_RANK: str(world.local_rank)}
    with _set_environment(known), warnings.catch_warnings():
        # Kernels with one channel have two equivalent memory layouts, about which DDP warns.
        warnings.filterwarnings("ignore", message="Grad strides do not match")
        torch.set_num_threads(min(threads, count_cores()))
        try:
            yield
        finally:
            torch.set_num_threads(threads)


@contextmanager
def start_followers(count: int, follow: Callable[[], object]) -> Iterator[None]:
    """Start ``count`` more processes on this machine, which call ``follow``; all in this block.

    In the block, this process is their leader.
    """
    # It finds a free port; the leader meets the others there.
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, multi_tenant=True)
    known = {
        ADDRESS: "127.0.0.1",
        PORT: str(server.port),
        **dict.fromkeys((SIZE, LOCAL_SIZE), str(count + 1)),
        **dict.fromkeys((RANK, LOCAL_RANK), "0"),
    }
    if sys.platform == "linux":
        known["GLOO_SOCKET_IFNAME"] = "lo"  # nobody else hears them
    with _set_environment(known):
        with main_module_left_out():
            started: Any = start_processes(  # type: ignore[no-untyped-call]
                _follow, (follow,), count, join=False, start_method="spawn"
            )
        try:
            yield
            for process in started.processes:
                process.join()
        finally:
            for process in started.processes:
                process.kill()  # it has ended already, unless the leader failed
                process.join()


def _follow(number: int, follow: Callable[[], object]) -> None:
    warnings.simplefilter("ignore")  # the leader shows them, and errors
    os.environ.update(dict.fromkeys((RANK, LOCAL_RANK), str(number + 1)))
    follow()


@contextmanager
def _set_environment(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
