"""Files whose sizes do not fit in 32 bits. Sparse, so that they cost little."""
