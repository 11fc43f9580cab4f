"""A program for the job's own Python, which may be old: prints its version and packages. Does not import torch.

Its arguments are the folder in which COMMAND finds its modules, and the modules that it names or imports.
"""

import sys

sys.path[:] = [folder for folder in sys.path if folder]  # ranks start with -P: the working folder may be anyone's

import json  # noqa: E402 - behind the line above

if __name__ == "__main__":
    found: "dict[str, object]" = {"version": sys.version_info[:3]}
    if sys.version_info >= (3, 8):  # noqa: UP036 - an old Python runs this, too
        from importlib import metadata, util

        for name in ("torch", "slurmddp", "msgspec"):
            spec = util.find_spec(name)
            found[name] = found[name + " in"] = None
            if spec:
                found[name + " in"] = spec.origin
                try:
                    found[name] = metadata.version(name)
                except metadata.PackageNotFoundError:
                    found[name] = "without a version"
        sys.path[:0] = sys.argv[1:2]
        found["modules"] = {name: util.find_spec(name.partition(".")[0]) is not None for name in sys.argv[2:]}
    print(json.dumps(found))  # noqa: T201 - the answer
