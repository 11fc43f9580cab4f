"""A job's configuration: its options, the files and variables that set them, and the checked value JobSpec."""

import sys

if "typing_extensions" not in sys.modules:
    # msgspec imports it where torch has brought it, and does without it elsewhere: 3 % of the time of `render`.
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    import msgspec  # noqa: F401

    del sys.modules["typing_extensions"]
