"""A live node made of a captured tree's text: what is not in it is not there."""

from rdmadiag.errors import NotPresent
from rdmadiag.host.captured import CapturedHost
from rdmadiag.host.tree import Noted, parse_tree


class LiveTree(CapturedHost):
    """A door for tests; `refused` paths may not be read, `texts` and `tables` are what run and objects answer."""

    def __init__(self, text="", *, refused=(), texts=None, tables=None, usable=None, files=None):
        tree, _ = parse_tree(text)
        super().__init__(tree, "node-a")
        self.live = self.root = True
        for path, content in (files or {}).items():
            tree.entries[path] = content
            tree._add(path)
        self.texts, self.tables, self.may_use = texts or {}, tables or {}, usable or {}
        self.noted = Noted(refused=dict.fromkeys(refused, ("not permitted (EACCES)", "run as root")))

    def _missing(self, path):
        return NotPresent(f"{path}: not there")

    def usable(self, path):
        return self.may_use.get(path)

    def run(self, command):
        if command not in self.texts:
            raise NotPresent(f"{command}: not a command of this door")
        return self.texts[command]

    def objects(self, command):
        if command not in self.tables:
            raise NotPresent(f"{command}: this kernel has no such netlink family")
        return self.tables[command]


def rows(found, table):
    """Return the values of a table's rows."""
    return [row.values for row in found if type(row).__name__ == "Row" and row.table == table]


def gaps(found):
    """Return the gaps."""
    return [gap for gap in found if type(gap).__name__ == "Gap"]


def lines(text):
    """Return a text as the lines of one section."""
    from rdmadiag.evidence.row import Line

    return [Line(number, line) for number, line in enumerate(text.splitlines(), 1)]
