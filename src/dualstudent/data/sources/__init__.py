"""Published and bundled data sets, one file each."""
