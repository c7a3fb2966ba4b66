"""What the doctor found, for programs and for people."""

from dataclasses import dataclass, field

from rich.table import Table

from dualstudent.doctor.anatomy import PARTS

_NONE = "·"


@dataclass(frozen=True)
class Reach:
    """Where one loss term of one student arrives.

    Attributes:
        student: whose loss the term is part of.
        term: its name.
        value: of the term, its weight included and fully ramped up.
        norms: network → part → Euclidean norm of the term's gradient, for those that it reaches.
        connected: whether the term depends on its student at all, even if its gradient is 0.
    """

    student: str
    term: str
    value: float
    norms: dict[str, dict[str, float]]
    connected: bool

    @property
    def is_off(self) -> bool:
        """The term is exactly 0: its weight is, or no sample took part."""
        return self.value == 0 and self.connected and not self.norms

    @property
    def arrives(self) -> bool:
        """The term has gradient in its own student."""
        return self.student in self.norms

    @property
    def all_norms(self) -> list[float]:
        return [norm for parts in self.norms.values() for norm in parts.values()]

    @property
    def evidence(self) -> tuple[bool, bool, bool]:
        """How much can be judged from this observation; more is greater."""
        return self.arrives, self.value != 0, self.connected


@dataclass
class Diagnosis:
    """The result of an examination.

    Attributes:
        findings: what is wrong, a line each; none if the method is healthy.
        reach: one entry for each term of each student, from the most telling step.
        networks: all that were watched, students first.
        steps: how many were taken.
    """

    findings: list[str] = field(default_factory=list)
    reach: list[Reach] = field(default_factory=list)
    networks: list[str] = field(default_factory=list)
    steps: int = 0

    @property
    def healthy(self) -> bool:
        return not self.findings

    @property
    def off(self) -> list[str]:
        """Terms that were exactly 0 in every step and so could not be judged."""
        return [f"{reach.term} of {reach.student}" for reach in self.reach if reach.is_off]


def reach_table(diagnosis: Diagnosis, title: str = "") -> Table:
    """One row per term and student: its value and the norm of its gradient, part by part.

    The parts are those of the student whose term it is; what arrives in other networks, where
    nothing should, stands in the last column.
    """
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("student", no_wrap=True)
    table.add_column("term", no_wrap=True)
    for column in ("value", *PARTS):
        table.add_column(column, justify="right")
    table.add_column("elsewhere", style="red")
    for reach in diagnosis.reach:
        own = reach.norms.get(reach.student, {})
        table.add_row(
            reach.student,
            reach.term,
            "off" if reach.is_off else f"{reach.value:.3g}",
            *(f"{own[part]:.2g}" if part in own else _NONE for part in PARTS),
            _elsewhere(reach) or _NONE,
        )
    return table


def _elsewhere(reach: Reach) -> str:
    return ", ".join(
        f"{network} {part} {norm:.2g}"
        for network, norms in reach.norms.items()
        for part, norm in norms.items()
        if network != reach.student
    )
