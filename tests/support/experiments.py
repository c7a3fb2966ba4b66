"""An experiment of seconds on real digits."""

from pathlib import Path

SMALL = """
title = "What unlabeled digits are worth"
place = "Table 0"
recipe = "demo"
seeds = 2
figure = "bars"

[[columns]]
name = "few"
settings.data = { source = "digits-8x8", image_size = 8, labels = 50 }

[[columns]]
name = "more"
settings.data = { source = "digits-8x8", image_size = 8, labels = 100 }

[[rows]]
name = "supervised"
settings.method.name = "supervised"
paper = ["12.50 ± 0.50", "7.25"]

[[rows]]
name = "both"
paper = ["10.00 ± 0.25 †", "–"]

[cpu]
smaller = "two short epochs of small batches"
seeds = 1

[[cpu.columns]]
name = "more"
settings.data = { source = "digits-8x8", image_size = 8, labels = 100 }

[cpu.settings]
batch = { size = 64, labeled = 16 }
schedule = { epochs = 2, rampup_epochs = 1 }
transforms.weak.translate = 1

[cpu.rows]
supervised = {}
both = { method.confidence_threshold = 0.5 }
"""


def write_small(folder: Path) -> Path:
    path = folder / "small.toml"
    path.write_text(SMALL)
    return path
