"""How good are the answers? Pure functions of gold and guessed, in numpy."""
