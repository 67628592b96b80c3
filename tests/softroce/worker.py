"""One process in the lab for all verbs work of a test run: pyverbs is imported once. Requests are lines of JSON, answers too.

A request names a function of one of these modules (`verbs_cases` ...) and its arguments; the answer has its result, or its error with the class's name.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback


def main() -> None:
    """Answer requests until input ends."""
    names = ("verbs_cases", "kv_cases", "wire_cases", "rule_cases")
    modules = [importlib.import_module(f"tests.softroce.{name}") for name in names]
    out = sys.stdout
    sys.stdout = sys.stderr
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            function = next(getattr(module, name) for module in modules if hasattr(module, name))
            answer = {"result": function(**arguments)}
        except Exception as error:  # noqa: BLE001 told to the test, which fails with it
            answer = {"error": type(error).__name__, "message": str(error), "trace": traceback.format_exc()}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
