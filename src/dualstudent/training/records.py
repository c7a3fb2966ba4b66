"""The form of results and metrics, whose files may come from a stranger."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dualstudent.errors import UserError

_Percent = Annotated[float, Field(ge=0, le=100)]
_Count = Annotated[int, Field(ge=0, lt=2**63)]
_AnyFloat = Annotated[float, Field(allow_inf_nan=True)]


class _Form(BaseModel):
    """Fields of these types; later versions may write more."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Figures(_Form):
    error: _Percent
    stable_share: _Percent
    stable_accuracy: _Percent | None
    # Earlier versions did not have these.
    top5_error: _Percent | None = None
    class_accuracy: list[_Percent | None] = []
    stable_class_accuracy: list[_Percent | None] = []


class Epoch(_Form):
    """One line of the metrics."""

    epoch: _Count
    step: _Count
    loss: list[dict[str, float]]
    test: dict[str, _Figures]
    stage: str | None = None
    distances: dict[str, dict[str, _AnyFloat]] = {}
    tracked: dict[str, list[_AnyFloat]] = {}


class _Comparison(_Form):
    labels_only_used: bool


class _Best(_Form):
    error: _Percent | None


class Result(_Form):
    """The result of a finished run."""

    error: _Percent | None
    headline: list[str] = Field(min_length=1)
    networks: dict[str, _Figures]
    chosen_on_test: _Best
    epochs: _Count
    seconds: float = Field(ge=0, lt=1e12)
    versions: dict[str, str]
    unreadable_images: _Count = 0
    gain: _Comparison | None = None

    @model_validator(mode="after")
    def _check_evaluated(self) -> Self:
        missing = {self.error is None, self.chosen_on_test.error is None, not self.networks}
        if len(missing) > 1:
            raise ValueError("either error, chosen_on_test and networks have figures, or none")
        if self.networks and not self.networks.keys() >= set(self.headline):
            raise ValueError("networks must have figures of all in headline")
        return self


def check_form(content: Mapping[str, Any], form: type[_Form], where: object) -> None:
    """Check that JSON has the fields that it must have, of the right types and in range.

    Raises:
        UserError: otherwise.
    """
    try:
        form.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{where}: is malformed or of another version ({key}: {first['msg']})"
        ) from error
