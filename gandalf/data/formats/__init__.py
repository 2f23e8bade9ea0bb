"""One module per layout: how to recognise it, read it and write it."""
