"""The program that the job's own Python, which may be an old one, is asked by: it prints what it has. No torch import.

Its words are the modules that COMMAND names.
"""

import json
import sys

if __name__ == "__main__":
    found: "dict[str, object]" = {"version": sys.version_info[:3]}
    if sys.version_info >= (3, 8):  # noqa: UP036 - an old Python runs this, too
        from importlib import metadata, util

        here = sys.path.pop(0)  # the ranks are started with -P, and look into the working folder for COMMAND alone
        for name in ("torch", "slurmddp"):
            spec = util.find_spec(name)
            found[name] = found[name + " in"] = None
            if spec:
                found[name + " in"] = spec.origin
                try:
                    found[name] = metadata.version(name)
                except metadata.PackageNotFoundError:
                    found[name] = "without a version"
        sys.path.insert(0, here)
        found["modules"] = {name: util.find_spec(name.partition(".")[0]) is not None for name in sys.argv[1:]}
    print(json.dumps(found))  # noqa: T201 - the answer
