"""Looking inside a model: attention, heads, layers, and the tokens that an answer rests on."""
