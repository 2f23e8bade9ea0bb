"""`python -m gandalf` is the command `gandalf`."""

from gandalf.cli.main import app

if __name__ == "__main__":
    app(prog_name="gandalf")
