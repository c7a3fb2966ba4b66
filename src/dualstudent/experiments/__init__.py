"""The experiments of the paper, and comparisons of methods: what is run, and what comes out."""
