"""Imbalanced Student: a weak student that learns beside a strong one.

Ke et al., Dual Student: Breaking the Limits of the Teacher in Semi-supervised Learning,
ICCV 2019, section 4.3. The losses are those of Dual Student (Eq. 7), but the two students are
different networks. Each follows the other only where that one is more stable, so that knowledge
flows in both directions.
"""

from typing import Literal

from pydantic import Field
from torch import nn

from dualstudent.methods.dual_student import DualStudent, DualStudentOptions
from dualstudent.networks.build import AnyNetworkSettings
from dualstudent.networks.network import NetworkSettings


class ImbalancedStudentSettings(DualStudentOptions):
    """The settings of Dual Student, the second network, and which student to export."""

    name: Literal["imbalanced-student"] = "imbalanced-student"
    strong_network: AnyNetworkSettings = Field(
        description="network of the strong student; the weak one uses the network of the recipe"
    )
    exported: Literal["weak", "strong"] = Field("weak", description="the student to export")

    def networks(self, network: NetworkSettings) -> list[NetworkSettings]:
        return [network, self.strong_network]


class ImbalancedStudent(DualStudent):
    """Dual Student with a weak first student and a strong second one.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> from dualstudent.networks.digits_cnn import DigitsCNNSettings
        >>> settings = ImbalancedStudentSettings(strong_network=DigitsCNNSettings(width=4))
        >>> method = ImbalancedStudent([DigitsCNN(), DigitsCNN(width=4)], settings)
        >>> list(method.evaluated), method.headline
        (['weak', 'strong'], ['weak'])
    """

    summary = "Dual Student of a weak and a strong network"
    Settings = ImbalancedStudentSettings
    settings: ImbalancedStudentSettings

    @property
    def networks(self) -> dict[str, nn.Module]:
        return dict(zip(("weak", "strong"), self.students, strict=True))

    @property
    def headline(self) -> list[str]:
        return ["weak"]

    @property
    def exported(self) -> str:
        return self.settings.exported
