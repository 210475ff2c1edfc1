"""The command line: one file per verb in `commands/`. Nothing here computes; every verb calls one stage."""
