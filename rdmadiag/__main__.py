"""`python -m rdmadiag`."""

from rdmadiag.cli import main

main()
