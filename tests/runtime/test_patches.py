"""Every name of another library that a rank replaces exists in the installed versions, or is left out."""

import importlib.util
import json
from operator import attrgetter

import pytest

from slurmddp.runtime.patches import PATCHES, Patch, replace


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.names[0])
def test_each_name_exists(patch):
    library = patch.names[0].partition(":")[0].partition(".")[0]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    for name in patch.names:
        module, _, path = name.partition(":")
        assert callable(attrgetter(path)(importlib.import_module(module)))


def test_a_replaced_name_keeps_its_signature_and_docstring(monkeypatch):
    monkeypatch.setattr(json.JSONEncoder, "encode", json.JSONEncoder.encode)
    replace(Patch(("json:JSONEncoder.encode",), "why"), lambda encode: lambda *words: f"<{encode(*words)}>")
    assert json.dumps({1: 2}, indent=0).startswith("<")
    assert json.JSONEncoder.encode.__doc__.startswith("Return a JSON string")


@pytest.mark.parametrize("name", ["json:JSONEncoder.gone", "no_such_module:name"])
def test_where_one_name_is_missing_nothing_is_replaced_and_one_line_is_said(name, capsys):
    before = json.dumps
    replace(Patch(("json:dumps", name), "why", "WARNING: left out"), lambda _: None)
    assert json.dumps is before
    assert capsys.readouterr().err == "WARNING: left out\n"
    replace(Patch((name,), "why"), lambda _: None)
    assert capsys.readouterr().err == ""
