"""Random and mutated files for every reader of foreign data: ``make fuzz``."""
