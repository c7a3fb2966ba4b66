"""Reports about finished runs: numbers as text, curves and HTML pages."""
