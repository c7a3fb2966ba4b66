"""The experiments of the paper: what each runs, how it is run, and what comes out."""
