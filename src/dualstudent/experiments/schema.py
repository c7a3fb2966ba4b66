"""An experiment as data: rows × columns of runs, and the paper's value of each."""

import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from dualstudent.settings import Settings

BudgetName = Literal["full", "cpu"]
FigureName = Literal["bars", "coupling", "ablation", "stable-samples", "adaptation"]
Measure = Literal["error", "accuracy", "top5_error"]
Table = dict[str, Any]

DISTANCE, TWO_CLASSES = "distance", "two classes"  # panels of figure "coupling": Fig. 2 and 3

_PAPER_VALUE = re.compile(r"(?P<mean>\d+\.\d+)( ± (?P<spread>\d+\.\d+))?(?P<quoted> †)?")
_NONE = "–"


@dataclass(frozen=True)
class Cell:
    """A cell of an experiment, by the names of its row and column."""

    row: str
    column: str

    def __str__(self) -> str:
        return f"{self.row}, {self.column}"


@dataclass(frozen=True)
class PaperValue:
    """A number of the paper, in percent.

    Attributes:
        mean: over the paper's runs.
        spread: the number after ±, if the paper has one.
        quoted: marked † in the paper: a result of others that is better than the authors' own.

    Example:
        >>> PaperValue.parse("31.65 ± 1.20 †")
        PaperValue(mean=31.65, spread=1.2, quoted=True)
    """

    mean: float
    spread: float | None
    quoted: bool

    @classmethod
    def parse(cls, text: str) -> "PaperValue":
        found = _PAPER_VALUE.fullmatch(text)
        if found is None:
            raise ValueError("write it as 12.34, 12.34 ± 0.56 or 12.34 ± 0.56 †, or – for none")
        spread = found["spread"]
        return cls(float(found["mean"]), float(spread) if spread else None, bool(found["quoted"]))

    def __str__(self) -> str:
        spread = "" if self.spread is None else f" ± {self.spread:.2f}"
        return f"{self.mean:.2f}{spread}{' †' if self.quoted else ''}"


class _Line(Settings):
    """What rows and columns share."""

    name: str = Field(min_length=1)
    recipe: str | None = Field(None, description="base of its runs; default: the experiment's")
    settings: Table = Field({}, description="what its runs change, as a recipe states it")


class Column(_Line):
    """A column: settings that its runs share."""

    measure: Measure | None = Field(None, description="default: the experiment's")


class Row(_Line):
    """A row: settings that its runs share, and the paper's values."""

    panel: str = Field("", description="the part of the figure that shows it")
    paper: tuple[str, ...] | None = Field(
        None,
        strict=False,
        description="one value a column, – for a cell that the paper leaves out; without any, "
        "the paper shows a curve instead of numbers",
    )

    @field_validator("paper")
    @classmethod
    def _check_paper(cls, values: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for value in values or ():
            if value != _NONE:
                PaperValue.parse(value)
        return values


class CpuBudget(Settings):
    """The experiment at a size for small machines."""

    smaller: str = Field(description="a sentence of what was made smaller")
    seeds: int = Field(gt=0)
    recipe: str | None = Field(None, description="in place of every other base")
    rows: dict[str, Table] = Field(description="name → what its runs change on top", min_length=1)
    columns: tuple[Column, ...] | None = Field(
        None, strict=False, description="in place of those of the experiment"
    )
    settings: Table = Field({}, description="what all runs change on top")


class Experiment(Settings):
    """A table or a figure of the paper, or one of the user's own, and the runs behind it.

    Settings are applied in this order, later ones win: the recipe, the row, the column and,
    in the cpu budget, those of the budget and those of its row. A method or network of another
    name drops the settings of the one before, except those of the task, as everywhere in recipes.
    """

    name: str = Field(description="what `dualstudent reproduce` calls it")
    title: str
    place: str = Field(description="where in the paper, or where its numbers come from")
    recipe: str
    measure: Measure = "error"
    seeds: int = Field(gt=0)
    figure: FigureName
    columns: tuple[Column, ...] = Field(min_length=1, strict=False)
    rows: tuple[Row, ...] = Field(min_length=1, strict=False)
    cpu: CpuBudget

    _own: bool = PrivateAttr(default=False)

    @property
    def own(self) -> bool:
        """Whether it is a file of the user, not of the package."""
        return self._own

    @property
    def reference(self) -> str:
        """What the values beside the measured ones are called; empty if there are none.

        Those of the package are the paper's. What the user's own are, only the user knows.
        """
        if all(value == _NONE for row in self.rows for value in row.paper or ()):
            return ""
        return "stated" if self.own else "paper"

    @model_validator(mode="after")
    def _check(self) -> "Experiment":
        rows, columns = [r.name for r in self.rows], [c.name for c in self.columns]
        of_cpu = [column.name for column in self.cpu.columns or ()]
        for what, names in (("rows", rows), ("columns", columns), ("columns of cpu", of_cpu)):
            if len(set(names)) < len(names):
                raise ValueError(f"two {what} have the same name")
        for row in self.rows:
            if row.paper is not None and len(row.paper) != len(columns):
                raise ValueError(f"row {row.name!r}: paper must have one value per column")
        for name in self.cpu.rows:
            if name not in rows:
                raise ValueError(f"cpu.rows: there is no row {name!r}")
        panels = {row.panel for row in self.rows}
        if self.figure == "ablation" and len(panels) != 2:
            raise ValueError("figure 'ablation' has two panels: give each row one of two")
        if self.figure == "coupling" and not panels <= {DISTANCE, TWO_CLASSES}:
            raise ValueError(
                f"figure 'coupling' has the panels {DISTANCE!r} and {TWO_CLASSES!r}: give each "
                "row one of them"
            )
        return self

    def cells(self, budget: BudgetName) -> list[Cell]:
        """The cells to run, row by row: all of the paper, or those of the cpu budget."""
        if budget == "cpu":
            columns = self.columns_of(budget)
            return [Cell(row, column.name) for row in self.cpu.rows for column in columns]
        return [
            Cell(row.name, column.name)
            for row in self.rows
            for number, column in enumerate(self.columns)
            if row.paper is None or row.paper[number] != _NONE
        ]

    def seeds_of(self, budget: BudgetName) -> int:
        """Default number of runs per cell."""
        return self.cpu.seeds if budget == "cpu" else self.seeds

    def columns_of(self, budget: BudgetName) -> tuple[Column, ...]:
        """The columns of a budget."""
        return (self.cpu.columns or self.columns) if budget == "cpu" else self.columns

    def row(self, name: str) -> Row:
        """The row of that name."""
        return next(row for row in self.rows if row.name == name)

    def paper(self, cell: Cell) -> PaperValue | None:
        """The paper's value of a cell, if it has one."""
        values = self.row(cell.row).paper or ()
        texts = dict(zip((column.name for column in self.columns), values, strict=False))
        text = texts.get(cell.column, _NONE)
        return None if text == _NONE else PaperValue.parse(text)

    def measure_of(self, cell: Cell) -> Measure:
        """What is measured in a cell."""
        columns = (*self.columns, *self.columns_of("cpu"))
        column = next(column for column in columns if column.name == cell.column)
        return column.measure or self.measure
