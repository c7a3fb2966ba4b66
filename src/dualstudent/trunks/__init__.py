"""Frozen trunks: networks that others have trained, and the features that they give."""
