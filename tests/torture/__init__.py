"""Everything that can go wrong with a run, many times: ``make torture``."""
