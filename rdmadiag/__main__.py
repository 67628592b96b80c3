"""`python -m rdmadiag`."""

from rdmadiag.cli import program

program()
