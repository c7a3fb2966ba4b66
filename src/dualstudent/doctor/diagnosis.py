"""The result of an examination."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reach:
    """Which parameters the gradient of one loss term of one student reaches.

    Attributes:
        student: name of the student that has the term in its loss.
        term: name of the term.
        value: of the term, with its weight, fully ramped up.
        norms: network → part → Euclidean norm of the gradient, where it is not 0.
        connected: whether the term depends on its student at all, even with a gradient of 0.
        domains: "source" and "target", as far as the term depends on samples of them beside the
            statistics of batch norm; empty if the data have one domain.
    """

    student: str
    term: str
    value: float
    norms: dict[str, dict[str, float]]
    connected: bool
    domains: frozenset[str] = frozenset()

    @property
    def is_off(self) -> bool:
        """Whether the term is exactly 0: its weight is 0, or no sample took part."""
        return self.value == 0 and self.connected and not self.norms

    @property
    def reaches_student(self) -> bool:
        """Whether the term has a gradient in its own student."""
        return self.student in self.norms

    @property
    def all_norms(self) -> list[float]:
        return [norm for parts in self.norms.values() for norm in parts.values()]

    @property
    def priority(self) -> tuple[bool, bool, bool]:
        """Sorts observations of a term by how much they tell; the largest tells most."""
        return self.reaches_student, self.value != 0, self.connected


@dataclass
class Diagnosis:
    """The result of an examination.

    Attributes:
        findings: what is wrong, one line each; empty if the method is healthy.
        reach: one entry for each term of each student, from the step that tells most.
        networks: names of all networks, students first.
        steps: number of steps taken.
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
        """Terms that were exactly 0 in every step, so that they could not be checked."""
        return [f"{reach.term} of {reach.student}" for reach in self.reach if reach.is_off]
