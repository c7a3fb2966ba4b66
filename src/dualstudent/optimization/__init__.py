"""How weights are updated: optimizers, and schedules of what changes with time."""
