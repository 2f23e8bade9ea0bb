"""Label graphs: co-occurrence, estimates of P(i | j), walks, and the diagnosis."""
