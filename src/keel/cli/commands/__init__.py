"""One file per verb: a file here is a verb of `keel` by existing, and ends with its `COMMAND`."""
