"""Reports: what a run made, as tables and pictures."""
