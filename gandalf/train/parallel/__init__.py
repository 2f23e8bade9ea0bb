"""Train one model by several processes; the rest of the package uses `ranks` only."""
