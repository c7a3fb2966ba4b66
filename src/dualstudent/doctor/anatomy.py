"""What a method is made of: its networks, and the parts of each."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from dualstudent.methods import Method
from dualstudent.networks.heads import DecoupledHeads

PARTS = ("trunk", "class head", "consistency head")


@dataclass(frozen=True)
class Part:
    """Parameters that are reported together.

    Attributes:
        network: that they belong to.
        name: one of ``PARTS``.
        parameters: by their names within the network; none is in two parts.
    """

    network: str
    name: str
    parameters: dict[str, nn.Parameter]


def students_of(method: Method) -> dict[str, nn.Module]:
    """The students by name, in their order."""
    if len(method.students) == 1:
        return {"student": method.students[0]}
    return {f"student{number}": each for number, each in enumerate(method.students, start=1)}


def networks_of(method: Method) -> dict[str, nn.Module]:
    """The students, then teachers, averages and whatever else the method keeps, by its name there.

    Example:
        >>> from dualstudent import DigitsCNN, DualStudent
        >>> list(networks_of(DualStudent([DigitsCNN(), DigitsCNN()])))
        ['student1', 'student2']
    """
    students = students_of(method)
    others = {
        path: network
        for path, network in _kept_by(method)
        if not any(network is student for student in students.values())
    }
    return students | others


def parts_of(method: Method) -> list[Part]:
    """Every parameter of the method in exactly one part; loose ones are the method's own trunk."""
    parts, known = [], set[nn.Parameter]()
    for network_name, network in (networks_of(method) | {"method": method}).items():
        members: dict[str, dict[str, nn.Parameter]] = {part: {} for part in PARTS}
        heads = _heads_of(network)
        for name, parameter in network.named_parameters():
            if parameter not in known:
                members[heads.get(parameter, "trunk")][name] = parameter
        known.update(network.parameters())
        parts += [Part(network_name, part, found) for part, found in members.items() if found]
    return parts


def _kept_by(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Networks below a method, its lists and the methods that it builds on."""
    for name, child in module.named_children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict | Method):
            yield from _kept_by(child, f"{path}{name}.")
        else:
            yield f"{path}{name}", child


def _heads_of(network: nn.Module) -> dict[nn.Parameter, str]:
    pairs = [module for module in network.modules() if isinstance(module, DecoupledHeads)]
    of_class = {p: "class head" for pair in pairs for p in pair.classify.parameters()}
    return of_class | {p: "consistency head" for pair in pairs for p in pair.follow.parameters()}
