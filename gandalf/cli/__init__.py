"""One thin function per command."""
