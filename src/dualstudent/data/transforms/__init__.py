"""What perturbs a view."""
