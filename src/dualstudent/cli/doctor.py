"""``dualstudent doctor``: check which networks each loss term reaches."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from dualstudent.cli.arguments import Changes, Imports
from dualstudent.cli.console import console, print_message

if TYPE_CHECKING:
    from dualstudent.doctor import Diagnosis, Reach

_NONE = "·"


def doctor(
    recipe: Annotated[
        str, typer.Argument(help="Name of a recipe, or path of a .toml file.")
    ] = "digits",
    set_: Changes = None,
    imports: Imports = None,
    steps: Annotated[int, typer.Option(min=1, help="Largest number of steps at a time.")] = 50,
) -> None:
    """Check in a few real steps that every loss term reaches its own student and nothing else.

    Shows the gradient of each term, part by part, and on which of two domains it depends.
    Each stage of a recipe is checked. Exit code 1 if something is wrong.
    """
    from dualstudent.doctor import examine
    from dualstudent.recipes.reading import load_recipe

    chosen = load_recipe(recipe, set_ or (), imports or ())
    names = [f"stage {stage.name}, " for stage in chosen.stages] or [""]
    healthy = True
    for name, stage in zip(names, chosen.split_stages(), strict=True):
        diagnosis = examine(stage, steps)
        _show(diagnosis, f"{name}{stage.method.name}: norm of each term's gradient")
        healthy &= diagnosis.healthy
    if not healthy:
        raise typer.Exit(1)


def _show(diagnosis: "Diagnosis", title: str) -> None:
    console.print(build_reach_table(diagnosis, title))
    if diagnosis.off:
        console.print(
            f"off: {', '.join(diagnosis.off)}: exactly 0 in all {diagnosis.steps} steps, "
            "because the weight is 0 or no sample took part (then try more --steps)"
        )
    for finding in diagnosis.findings:
        print_message("wrong", "red", finding)
    if diagnosis.healthy:
        watched = ", ".join(diagnosis.networks)
        console.print(f"healthy in {diagnosis.steps} steps; watched: {watched}")


def build_reach_table(diagnosis: "Diagnosis", title: str = "") -> Table:
    """One row per term and student: its value and the norm of its gradient, part by part.

    The columns of parts belong to the student of the term. If the data have two domains, a column
    says on whose samples the term depends. The last column lists gradients in other networks,
    which should be none.
    """
    from dualstudent.doctor.parts import PARTS

    table = Table(title=title, title_justify="left", box=None)
    table.add_column("student", no_wrap=True)
    table.add_column("term", no_wrap=True)
    for column in ("value", *PARTS):
        table.add_column(column, justify="right")
    two_domains = any(reach.domains for reach in diagnosis.reach)
    if two_domains:
        table.add_column("domain", no_wrap=True)
    table.add_column("elsewhere", style="red")
    for reach in diagnosis.reach:
        own = reach.norms.get(reach.student, {})
        table.add_row(
            reach.student,
            reach.term,
            "off" if reach.is_off else f"{reach.value:.3g}",
            *(f"{own[part]:.2g}" if part in own else _NONE for part in PARTS),
            *([_describe_domains(reach)] if two_domains else []),
            _describe_elsewhere(reach) or _NONE,
        )
    return table


def _describe_domains(reach: "Reach") -> str:
    return "both" if len(reach.domains) > 1 else next(iter(reach.domains), _NONE)


def _describe_elsewhere(reach: "Reach") -> str:
    return ", ".join(
        f"{network} {part} {norm:.2g}"
        for network, norms in reach.norms.items()
        for part, norm in norms.items()
        if network != reach.student
    )
