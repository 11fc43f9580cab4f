"""Told to the job's own Python as its program, which may be an old one: prints what it has, as JSON. No torch import.

Words: the module that COMMAND names, if it is one.
"""

import json
import sys


def main():  # noqa: ANN201 - an old Python reads this, too
    """Print the version, where torch lies, and the versions of packages."""
    found = {"version": sys.version_info[:3], "executable": sys.executable}
    if sys.version_info >= (3, 8):  # noqa: UP036 - an old Python reads this, too
        from importlib import metadata, util  # noqa: PLC0415 - the same

        for name in ("torch", "slurmddp"):
            spec = util.find_spec(name)
            found[name] = None
            if spec:
                try:
                    found[name] = metadata.version(name)
                except metadata.PackageNotFoundError:
                    found[name] = "without a version"
                found[name + " in"] = spec.origin
        found["modules"] = {name: util.find_spec(name.partition(".")[0]) is not None for name in sys.argv[1:]}
    print(json.dumps(found))  # noqa: T201 - the answer


main()
