"""Read files into a `Dataset`, check and write them. No other room knows a file format."""
