"""What the doctor found."""

from dataclasses import dataclass, field


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
