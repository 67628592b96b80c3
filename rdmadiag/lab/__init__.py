"""SoftRoCE labs: hosts with rxe devices and a switch between them, in a virtual machine or on this kernel.

`up(options)` makes a lab or finds it running, `find(name)` and `labs()` find what is up; a `Lab` runs commands.
"""

from rdmadiag.lab.client import Ran
from rdmadiag.lab.lab import Lab, State, find, labs, look, take_down, up
from rdmadiag.lab.options import Options
from rdmadiag.lab.places import LabError

__all__ = ["Lab", "LabError", "Options", "Ran", "State", "find", "labs", "look", "take_down", "up"]
