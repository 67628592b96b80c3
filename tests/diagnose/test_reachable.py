"""Which empty tables leave a query without a row, seen in SQLite's program: what is said holds for whatever the other tables have."""

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmadiag.diagnose import reachable

TABLES = ("a", "b", "c")


def database():
    db = sqlite3.connect(":memory:")
    db.executescript("".join(f"CREATE TABLE {name} (x, y, PRIMARY KEY (x, y));" for name in TABLES))
    db.executescript("CREATE TABLE d (x, y)")
    return db


@pytest.mark.parametrize(
    "query, tables",
    [
        ("SELECT x FROM a", "a"),
        ("SELECT x FROM d WHERE x = 3 ORDER BY y", "d"),
        ("SELECT a.x FROM a JOIN d ON d.x = a.x", "ad"),
        ("SELECT a.x FROM a LEFT JOIN d ON d.x = a.x", "a"),
        ("SELECT a.x FROM a, b LEFT JOIN d ON d.x = a.x WHERE b.y > 1", "ab"),
        ("SELECT x, count(*) FROM d GROUP BY x", "d"),
        ("SELECT d.x, count(*) FROM d JOIN a ON a.x = d.x GROUP BY d.x HAVING count(*) > 1 ORDER BY 2", "ad"),
        ("SELECT count(*) FROM a", ""),
        ("SELECT max(x) FROM a HAVING count(*) > 0", ""),
        ("SELECT x FROM a UNION ALL SELECT x FROM b", ""),
        ("SELECT a.x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x)", "a"),
        ("SELECT a.x FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.x)", "a"),
        ("WITH g AS (SELECT x, min(y) AS y FROM d GROUP BY x) SELECT g.x FROM g JOIN a ON a.x = g.x", "ad"),
        ("WITH g AS (SELECT x, min(y) AS y FROM d GROUP BY x) SELECT a.x FROM a LEFT JOIN g ON a.x = g.x", "a"),
        ("SELECT DISTINCT x FROM d WHERE y IN (SELECT y FROM a)", "ad"),
        ("SELECT 1", ""),
    ],
)
def test_tables_without_which_there_is_no_row(query, tables):
    assert reachable.needed(database(), query, {}) <= set(
        tables
    )  # what another release of SQLite cannot be read of is not said
    if sqlite3.sqlite_version_info[:2] in ((3, 40), (3, 46)):
        assert reachable.needed(database(), query, {}) == set(tables)


def test_an_instruction_that_is_not_known_says_nothing(monkeypatch):
    monkeypatch.setattr(reachable, "_EMPTY", reachable._EMPTY - {"Rewind"})
    assert reachable.needed(database(), "SELECT x FROM a", {}) == frozenset()


names = st.sampled_from((*TABLES, "d"))
conditions = st.sampled_from(
    (
        "1", "t.x = 1", "t.y IS NULL", "t.x IN (SELECT y FROM {0})", "EXISTS (SELECT 1 FROM {0} e WHERE e.x = t.x)",
        "NOT EXISTS (SELECT 1 FROM {0} e WHERE e.y = t.x)", "(SELECT count(*) FROM {0}) < 2", "t.x NOT IN (SELECT x FROM {0})",
        "t.x = coalesce((SELECT max(y) FROM {0}), 1)",
    )
)  # fmt: skip
joins = st.sampled_from(
    (
        "", "JOIN {0} u ON u.x = t.x", "LEFT JOIN {0} u ON u.x = t.x", ", {0} u", "LEFT JOIN (SELECT x, count(*) n FROM {0} GROUP BY x) u ON u.x = t.x",
        "JOIN (SELECT max(x) AS x FROM {0}) u", "JOIN (SELECT x FROM {0} UNION SELECT y FROM {1}) u ON u.x >= t.x",
        "JOIN (SELECT x, rank() OVER (ORDER BY y) r FROM {0}) u ON u.r = 1", "LEFT JOIN {0} u ON u.x = t.x LEFT JOIN {1} v ON v.y = u.y",
        "JOIN {0} u ON u.x = t.x JOIN {1} v ON v.x = u.y",
    )
)  # fmt: skip
ends = st.sampled_from(
    (
        "",
        "GROUP BY t.x",
        "GROUP BY t.x, t.y HAVING count(*) > 1",
        "ORDER BY t.y DESC",
        "ORDER BY t.x LIMIT 2",
        "GROUP BY t.y ORDER BY count(*)",
    )
)


@st.composite
def selects(draw):
    """Return one SELECT over the four tables."""
    what = draw(
        st.sampled_from(
            (
                "t.x",
                "DISTINCT t.x",
                "count(*)",
                "max(t.y)",
                "(SELECT min(x) FROM {0}), t.y",
                "lag(t.x) OVER (ORDER BY t.y)",
            )
        )
    )
    end = draw(ends)
    if "OVER" in what and "GROUP" in end:
        end = ""
    text = f"SELECT {what} FROM {{2}} t {draw(joins)} WHERE {draw(conditions)} {end}"
    return text.format(draw(names), draw(names), draw(names))


@st.composite
def queries(draw):
    """Return a SELECT, a compound of two, or one of a common table expression."""
    kind = draw(st.integers(0, 3))
    one = draw(selects())
    if kind == 0:
        return one
    column = "SELECT t.x AS x, 1 AS y FROM ({0}) t0, {1} t" if kind == 1 else "SELECT x, y FROM {1}"
    if kind == 3:
        other = draw(selects())
        return (
            f"SELECT * FROM ({one.replace('SELECT', 'SELECT 1 AS z, ', 1)}) UNION ALL SELECT 1, 2 FROM ({other})"
            if "DISTINCT" not in one and one.count(", t.y FROM") == 0
            else one
        )
    inner = column.format(f"SELECT 1 FROM {draw(names)}", draw(names))
    return (
        f"WITH k AS ({inner}) SELECT k.x FROM k {draw(st.sampled_from(('', 'LEFT')))} JOIN {draw(names)} w ON w.x = k.x"
    )


rows = st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 3)), unique=True, max_size=4)


@settings(max_examples=300, deadline=None)
@given(queries(), st.fixed_dictionaries(dict.fromkeys((*TABLES, "d"), rows)))
def test_without_a_table_that_is_said_to_be_needed_there_is_no_row(query, content):
    db = database()
    for name in reachable.needed(db, query, {}):
        for table, values in content.items():
            db.execute(f"DELETE FROM {table}")
            if table != name:
                db.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?, ?)", values)
        assert db.execute(query).fetchall() == [], name
