"""Methods, one file each, named as in their papers."""

from typing import TYPE_CHECKING, Annotated, Any, Union, cast

from pydantic import (
    Field,
    SerializeAsAny,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from dualstudent.discovery import (
    allow_imports,
    find_plugin,
    import_folder,
    is_import_path,
    validate_plugin,
)
from dualstudent.errors import UserError
from dualstudent.methods.adamatch import AdaMatch, AdaMatchSettings
from dualstudent.methods.cs import CS, CSSettings
from dualstudent.methods.deep_co_training import DeepCoTraining, DeepCoTrainingSettings
from dualstudent.methods.dnll import DNLL, DNLLSettings
from dualstudent.methods.dual_student import DualStudent, DualStudentSettings
from dualstudent.methods.dual_student_mean_teacher import (
    DualStudentMeanTeacher,
    DualStudentMeanTeacherSettings,
)
from dualstudent.methods.dual_student_shot import DualStudentSHOT, DualStudentSHOTSettings
from dualstudent.methods.fastswa import (
    MeanTeacherFastSWA,
    MeanTeacherFastSWASettings,
    PiFastSWA,
    PiFastSWASettings,
)
from dualstudent.methods.fixmatch import FixMatch, FixMatchSettings
from dualstudent.methods.flexmatch import FlexMatch, FlexMatchSettings
from dualstudent.methods.freematch import FreeMatch, FreeMatchSettings
from dualstudent.methods.ict import ICT, ICTSettings
from dualstudent.methods.imbalanced_student import ImbalancedStudent, ImbalancedStudentSettings
from dualstudent.methods.mean_teacher import MeanTeacher, MeanTeacherSettings
from dualstudent.methods.method import Method, MethodSettings, StudentLoss, Task
from dualstudent.methods.mixmatch import MixMatch, MixMatchSettings
from dualstudent.methods.multiple_student import MultipleStudent, MultipleStudentSettings
from dualstudent.methods.pi import PiModel, PiModelSettings
from dualstudent.methods.self_ensembling import SelfEnsembling, SelfEnsemblingSettings
from dualstudent.methods.shot import SHOT, SHOTSettings
from dualstudent.methods.smooth_neighbors import (
    PiSmoothNeighbors,
    PiSmoothNeighborsSettings,
    TemporalSmoothNeighbors,
    TemporalSmoothNeighborsSettings,
)
from dualstudent.methods.soft_pseudo_labels import SoftPseudoLabels, SoftPseudoLabelsSettings
from dualstudent.methods.softmatch import SoftMatch, SoftMatchSettings
from dualstudent.methods.supervised import Supervised, SupervisedSettings
from dualstudent.methods.temporal import TemporalEnsembling, TemporalEnsemblingSettings
from dualstudent.methods.vat import VAT, VATSettings


def _find_methods() -> tuple[type[Method], ...]:
    """Import all files of this folder and return every method that has a summary, by name."""
    import_folder(__name__, __path__)
    kinds, found = [Method], []
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each not in kinds]
        if "summary" in vars(kind) and kind.__module__.startswith(__name__):
            found.append(kind)
    return tuple(sorted(found, key=lambda kind: str(kind.Settings.model_fields["name"].default)))


METHODS = _find_methods()


ENTRY_POINTS = "dualstudent.methods"
"""Group of the entry points by which packages add methods."""

_BY_NAME = {str(method.Settings.model_fields["name"].default): method for method in METHODS}


def find_method(settings: MethodSettings) -> type[Method]:
    """Return the class of the method that has these settings."""
    for method in METHODS:
        if method.Settings is type(settings):
            return method
    # The settings exist, so the user has let it be imported.
    found = find_plugin(settings.name, ENTRY_POINTS, allow_imports([settings.name]))
    return cast(type[Method], found)


def needs_strong_views(settings: MethodSettings) -> bool:
    """Return whether the method with these settings learns from strong views.

    Example:
        >>> needs_strong_views(SupervisedSettings()), needs_strong_views(FixMatchSettings())
        (False, True)
    """
    return any("strong" in policies for policies in find_method(settings).choose_views(settings))


def list_settings(name: object) -> set[str]:
    """Return the keys of the settings of a method; empty if there is none of that name.

    Of a method of others, which is not imported here, they are those that all methods have.

    Example:
        >>> sorted(list_settings("supervised"))
        ['confidence_threshold', 'label_smoothing', 'name', 'students', 'view']
    """
    if not isinstance(name, str):  # a recipe may say anything
        return set()
    if is_import_path(name):
        return set(MethodSettings.model_fields)
    return set(_BY_NAME[name].Settings.model_fields) if name in _BY_NAME else set()


def list_defaults(name: object) -> dict[str, Any]:
    """Return the settings of one of our methods that have a default; empty for any other name.

    Example:
        >>> list_defaults("fixmatch")["pseudo_label_threshold"]
        0.95
    """
    if not isinstance(name, str) or name not in _BY_NAME:
        return {}
    fields = _BY_NAME[name].Settings.model_fields
    return {key: field.default for key, field in fields.items() if not field.is_required()}


def _validate_any(
    value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
) -> MethodSettings:
    """Validate the settings of one of our methods, or of one of others."""
    if isinstance(value, MethodSettings):
        return value
    name = value.get("name") if isinstance(value, dict) else None
    found = None
    if isinstance(name, str) and name not in _BY_NAME:
        found = find_plugin(name, ENTRY_POINTS, info.context)
    if found is None:
        return cast(MethodSettings, handler(value))
    if not (isinstance(found, type) and issubclass(found, Method)) or not hasattr(
        found, "Settings"
    ):
        raise UserError(
            f"name = {name!r} is not a class of dualstudent.Method with Settings and losses()"
        )
    return validate_plugin(found.Settings, value, info.context)


if TYPE_CHECKING:
    AnyMethodSettings = MethodSettings
else:  # the key ``name`` selects the class
    AnyMethodSettings = Annotated[
        Union[tuple(method.Settings for method in METHODS)],  # noqa: UP007
        Field(discriminator="name"),
        WrapValidator(_validate_any),
        SerializeAsAny(),
    ]

__all__ = [
    "CS",
    "DNLL",
    "ICT",
    "METHODS",
    "SHOT",
    "VAT",
    "AdaMatch",
    "AdaMatchSettings",
    "AnyMethodSettings",
    "CSSettings",
    "DNLLSettings",
    "DeepCoTraining",
    "DeepCoTrainingSettings",
    "DualStudent",
    "DualStudentMeanTeacher",
    "DualStudentMeanTeacherSettings",
    "DualStudentSHOT",
    "DualStudentSHOTSettings",
    "DualStudentSettings",
    "FixMatch",
    "FixMatchSettings",
    "FlexMatch",
    "FlexMatchSettings",
    "FreeMatch",
    "FreeMatchSettings",
    "ICTSettings",
    "ImbalancedStudent",
    "ImbalancedStudentSettings",
    "MeanTeacher",
    "MeanTeacherFastSWA",
    "MeanTeacherFastSWASettings",
    "MeanTeacherSettings",
    "Method",
    "MethodSettings",
    "MixMatch",
    "MixMatchSettings",
    "MultipleStudent",
    "MultipleStudentSettings",
    "PiFastSWA",
    "PiFastSWASettings",
    "PiModel",
    "PiModelSettings",
    "PiSmoothNeighbors",
    "PiSmoothNeighborsSettings",
    "SHOTSettings",
    "SelfEnsembling",
    "SelfEnsemblingSettings",
    "SoftMatch",
    "SoftMatchSettings",
    "SoftPseudoLabels",
    "SoftPseudoLabelsSettings",
    "StudentLoss",
    "Supervised",
    "SupervisedSettings",
    "Task",
    "TemporalEnsembling",
    "TemporalEnsemblingSettings",
    "TemporalSmoothNeighbors",
    "TemporalSmoothNeighborsSettings",
    "VATSettings",
    "list_defaults",
    "list_settings",
    "needs_strong_views",
]
