"""Several processes that train one model. `ranks` is what the rest of the package sees of them."""
