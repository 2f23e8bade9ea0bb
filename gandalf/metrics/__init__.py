"""Score predictions against true labels."""
