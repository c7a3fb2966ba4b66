"""OpenMP threads wait passively unless the user chose otherwise."""

import os
import subprocess
import sys

import pytest

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def run(program: str, **chosen: str) -> subprocess.CompletedProcess[str]:
    """A Python program in a process of its own, in whose environment only this is chosen."""
    others = {name: value for name, value in os.environ.items() if name not in CHOICES}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=others | chosen,
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize(
    ("imported", "chosen", "policy"),
    [
        ("dualstudent", {}, "PASSIVE"),
        ("torch, dualstudent", {}, "None"),  # too late
        ("dualstudent", {"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"),
        ("dualstudent", {"GOMP_SPINCOUNT": "1000"}, "None"),
    ],
)
def test_the_policy_is_passive_unless_something_else_was_chosen(
    imported: str, chosen: dict[str, str], policy: str
) -> None:
    program = f"import os, {imported}; print(os.environ.get('OMP_WAIT_POLICY'))"
    assert run(program, **chosen).stdout == f"{policy}\n"


def test_the_policy_is_there_before_openmp_reads_it() -> None:
    shown = run("import dualstudent, torch", OMP_DISPLAY_ENV="verbose").stderr
    if "GOMP_SPINCOUNT" not in shown:
        pytest.skip("torch has another OpenMP than GCC's here")
    assert "GOMP_SPINCOUNT = '0'" in shown
