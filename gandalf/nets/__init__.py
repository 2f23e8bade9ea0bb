"""Token ids to vectors, labels to rows."""
