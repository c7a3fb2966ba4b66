"""The networks of a method, and the parts of each."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from dualstudent.methods import Method
from dualstudent.networks.layers import DecoupledHeads

PARTS = ("trunk", "class head", "consistency head")


@dataclass(frozen=True)
class Part:
    """A part of a network, such as its trunk.

    Attributes:
        network: name of the network.
        name: one of ``PARTS``.
        parameters: by their names in the network; each is in one part only.
    """

    network: str
    name: str
    parameters: dict[str, nn.Parameter]


def name_students(method: Method) -> dict[str, nn.Module]:
    """Name → student, in their order."""
    if len(method.students) == 1:
        return {"student": method.students[0]}
    return {f"student{number}": each for number, each in enumerate(method.students, start=1)}


def name_networks(method: Method) -> dict[str, nn.Module]:
    """Name → network: the students, then teachers, averages and others.

    Example:
        >>> from dualstudent import DigitsCNN, DualStudent
        >>> list(name_networks(DualStudent([DigitsCNN(), DigitsCNN()])))
        ['student1', 'student2']
    """
    students = name_students(method)
    others = {
        path: network
        for path, network in _find_networks(method)
        if not any(network is student for student in students.values())
    }
    return students | others


def split_parts(method: Method) -> list[Part]:
    """Split all parameters into parts; those outside of networks are the trunk of "method"."""
    parts, known = [], set[nn.Parameter]()
    for network_name, network in (name_networks(method) | {"method": method}).items():
        members: dict[str, dict[str, nn.Parameter]] = {part: {} for part in PARTS}
        heads = _find_heads(network)
        for name, parameter in network.named_parameters():
            if parameter not in known:
                members[heads.get(parameter, "trunk")][name] = parameter
        known.update(network.parameters())
        parts += [Part(network_name, part, found) for part, found in members.items() if found]
    return parts


def _find_networks(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Path and network of all networks in a method, its lists and nested methods."""
    for name, child in module.named_children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict | Method):
            yield from _find_networks(child, f"{path}{name}.")
        else:
            yield f"{path}{name}", child


def _find_heads(network: nn.Module) -> dict[nn.Parameter, str]:
    pairs = [module for module in network.modules() if isinstance(module, DecoupledHeads)]
    of_class = {p: "class head" for pair in pairs for p in pair.classify.parameters()}
    return of_class | {p: "consistency head" for pair in pairs for p in pair.follow.parameters()}
