"""Other ways to train the same model: the same function of the same weights, by other people's code, and a race."""
