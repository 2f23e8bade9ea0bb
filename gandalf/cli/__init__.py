"""Define the commands of `gandalf`, one module for each command."""
