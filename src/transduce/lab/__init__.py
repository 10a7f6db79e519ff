"""The laboratory: what reproduces the tables of the paper. ``reproduce`` trains Table 3's rows, scaled down."""
