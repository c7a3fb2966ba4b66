"""How fast training is beside other work, by how the threads of OpenMP wait for each other.

    python benchmarks/busy_machine.py [--seconds 10] [--rounds 3]     # about 6 minutes

The recipe digits, trained alone and two at once, each on an idle machine and beside a process that
keeps one core busy; with the default of GCC's OpenMP, whose waiting threads spin, and with the
policy that dualstudent sets, under which they sleep. Prints the steps per second of one training,
the median over the rounds, and their ratio. Run it while nothing else runs, with OMP_NUM_THREADS
not set.
"""

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean, median

from dualstudent import Trainer, load_recipe

POLICIES = {
    "default": {"GOMP_SPINCOUNT": "300000"},  # what libgomp takes if nothing is set
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
}
WARM_UP = 3  # steps


def take_steps(seconds: float) -> None:
    """Be a training: say that it is ready, wait for a line, and print its steps per second."""
    trainer = Trainer(load_recipe("digits"))
    for _ in range(WARM_UP):
        trainer.advance()
    print("ready", flush=True)
    sys.stdin.readline()
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        trainer.advance()
    print((trainer.state.step - WARM_UP) / (time.perf_counter() - started))


def measure(trainings: int, busy: int, policy: str, seconds: float) -> float:
    """Steps per second of a training, on average, beside the others and ``busy`` processes."""
    others = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    command = [sys.executable, __file__, "--train-for", str(seconds)]
    processes = [
        subprocess.Popen(
            command,
            env=others | POLICIES[policy],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(trainings)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    with busy_processes(busy):
        for process in processes:  # all begin at once
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return fmean(float(process.communicate()[0]) for process in processes)


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Processes that keep a core busy each, for as long as the block lasts."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--train-for", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train_for is not None:
        take_steps(arguments.train_for)
        return
    cells = list(itertools.product((1, 2), (0, 1), POLICIES))
    rates: dict[tuple[int, int, str], list[float]] = {cell: [] for cell in cells}
    for _ in range(arguments.rounds):  # the cells take turns, so that all see the same machine
        for cell in cells:
            rates[cell].append(measure(*cell, arguments.seconds))
    print("trainings  beside           default    passive  ratio   (steps per second of one)")
    for trainings, busy in itertools.product((1, 2), (0, 1)):
        default, passive = (median(rates[trainings, busy, policy]) for policy in POLICIES)
        beside = "a busy process" if busy else "nothing"
        print(
            f"{trainings:>9}  {beside:<14}  {default:>8.2f}  {passive:>9.2f}  "
            f"{passive / default:>5.2f}"
        )


if __name__ == "__main__":
    main()
