"""The base of everything that can be set: strict, immutable, with unknown keys refused."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Validated settings: wrong types, ranges and unknown keys are errors, never guesses."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
