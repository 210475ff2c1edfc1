"""One short file per verb of the command line: the only place that combines the other rooms."""
