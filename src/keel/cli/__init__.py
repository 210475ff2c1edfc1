"""The command line: one file per verb group. Nothing here computes; every verb calls one stage."""
