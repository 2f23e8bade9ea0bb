"""Files to `Dataset`: the only room that knows a file format."""
