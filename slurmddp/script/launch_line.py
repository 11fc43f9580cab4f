"""Finds the statement of a batch script that starts the ranks, by a parser of bash. Nothing of the script is run.

The only module that imports tree-sitter.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import tree_sitter
import tree_sitter_bash
from tree_sitter import Node

from slurmddp.errors import UsageError
from slurmddp.text import quote_value

_WORDS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_LAUNCHERS, _CONTAINERS, _SHELLS, _RUNNERS, _REMOTE, _HELPERS, _HELPER_MODULES, _ENTERED, _LOOPS = (
    frozenset(words) for words in _WORDS.values()
)
"""Names of programs, and of the parser's nodes, in the order of the file."""
_LAUNCHER_MODULE: Final = re.compile(
    r"torch\.distributed\.(run|launch)|accelerate\.commands\.launch|deepspeed\.launcher"
)
_PYTHON: Final = re.compile(r"(python[\d.]*|pypy3?)\}?|\$\{?\w*(py|PY)\w*\}?")
"""The name of a Python, also in a variable, as `"${PYTHON_BIN}"`."""
_ON_ONE_NODE: Final = re.compile(rf"(\S*/)?(torchrun|accelerate|\S+\.py|{_PYTHON.pattern})(?!.*deepspeed)(?!\S)")
_TRAINS: Final = re.compile(r"(python[\d.]*|torchrun|accelerate|deepspeed|apptainer|singularity|uv|.*\.(py|sh))")
_STARTS: Final = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed")
_TRAINS_IN_TEXT: Final = re.compile(
    r"\b(python[\d.]*|torchrun|accelerate|deepspeed)\b|\$\{?[A-Za-z_]*(CMD|LAUNCH|cmd|launch)"
)
_ONE_TASK: Final = re.compile(r"(?:^|\s)(-n ?1|--ntasks[= ]1|-N ?1|--nodes[= ]1)(?=\s|$)")
_PLAIN: Final = dict.fromkeys(("time", "nohup", "command", "stdbuf", "setsid"), "")
_PREFIXES: Final = _PLAIN | {"exec": "-a", "nice": "-n", "env": "-u", "timeout": "-k -s"}
"""Words before a command, each with its options that take a value."""
_SETS: Final = re.compile(
    rb"\b(?:for|select)\s+(\w+)|\b(?:read|mapfile|readarray|getopts|printf)\b([^;|&<\n]*)"
    rb"|\b([A-Za-z_]\w*)(?:\[[^]\n]*\])?\s*(?:\+\+|--|[-+*/%]?=)|(?:\+\+|--)([A-Za-z_]\w*)"
)
"""How a shell sets variables."""


class Launch(NamedTuple):
    """The statement that starts the ranks."""

    start: int
    end: int
    """Its place in the text, in bytes."""
    function_at: int
    """Where the function is put: before the outermost statement around it."""
    line: int
    text: bytes
    """What the function runs."""
    is_exec: bool
    """Whether the script ends with it (`exec srun ...`)."""
    is_background: bool
    """Whether a shell of its own runs it, to which `$!` belongs (`srun ... &`)."""
    is_repeated: bool
    """Whether it stands in a loop, or in a function that is called more than once."""
    varying: tuple[str, ...]
    """The variables that can differ between its starts, as words of a shell."""


class _Candidate(NamedTuple):
    node: Node
    around: tuple[Node, ...]
    """The nodes around it, the outermost first."""
    strength: int
    """2 for a launcher, 1 for a program that may train."""
    is_one_task: bool

    @property
    def line(self) -> int:
        return self.node.start_point[0] + 1

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The candidate with the least is the launch."""
        return self.is_one_task, -self.strength, self.node.start_byte


def find_launch(path: str, text: bytes, line: int | None = None, nodes: int = 1) -> tuple[Launch, tuple[str, ...]]:
    """Return the launch of a script for so many nodes: the statement of that line, else what most looks like it.

    With it comes what the user is told of the script. Raises UsageError, with the line that is in the way, where no
    statement can be wrapped.
    """
    root = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language())).parse(text).root_node
    place = f"{quote_value(path)}, line"
    if line is not None:
        candidates = [one for one in _commands(root) if one.line <= line <= one.node.end_point[0] + 1][:1]
        if not candidates:
            raise UsageError(f"--launch-line {line}: {quote_value(path)} has no command there that can be wrapped")
    else:
        candidates = sorted((one for one in _commands(root) if one.strength), key=lambda one: one.rank)
    if not candidates:
        raise UsageError(_explain_none(root, path))
    chosen = candidates[0]
    if "--het-group" in _text(chosen.node):
        raise UsageError(f"{place} {chosen.line}: --het-group is for a heterogeneous job; submit it by sbatch")
    others = [one for one in candidates[1:] if one.strength == chosen.strength]
    notices = (*_explain_choice(place, chosen, others), *_explain_others(root, place, path))
    return _launch(chosen, text, place), (*notices, *_explain_one_node(place, (chosen, *others), nodes))


def _commands(node: Node, around: tuple[Node, ...] = ()) -> Iterator[_Candidate]:
    """Yield the commands that can be wrapped where they stand, in their order."""
    if node.type == "command":
        strength, is_one_task = _judge(node)
        yield _Candidate(node, around, strength, is_one_task)
    elif node.type in _ENTERED:
        for child in node.children:
            yield from _commands(child, (*around, node))


def _judge(node: Node) -> tuple[int, bool]:
    """Return how much a command looks like the launch, 0 for not at all, and whether it starts one task only."""
    words = _program(_words(node))
    if not words:
        return 0, False
    name, rest = words[0].rpartition("/")[2], words[1:]
    if name in _LAUNCHERS:
        return 0 if _is_helper(rest) else 2, name == "srun" and _ONE_TASK.search(" ".join(rest)) is not None
    return _judge_program(name, words[0], rest), False


def _judge_program(name: str, word: str, rest: list[str]) -> int:
    """Return how much a program that is no launcher looks like one that starts the ranks by itself."""
    if _PYTHON.fullmatch(name):
        return _judge_python(rest)
    if name.startswith("-"):  # of `uv run`
        return max(_judge_python([word, *rest]), _judge_inner(rest))
    if name in _CONTAINERS:
        return int(not _is_helper(rest) and any(map(_TRAINS.fullmatch, rest)))
    if name in _SHELLS or name == "eval":
        return int(any(one.endswith(".sh") or _TRAINS_IN_TEXT.search(one) for one in rest))
    if name.endswith((".sh", ".py")) or _TRAINS_IN_TEXT.match(word):
        return 1
    return 0 if name in _REMOTE or (name in _HELPERS and rest[:1] != ["run"]) else _judge_inner(rest)


def _judge_python(rest: list[str]) -> int:
    """Return how much the words behind `python` look like a program that trains."""
    for index, word in enumerate(rest):
        if re.fullmatch(r"-\w*c", word):
            return 0
        if re.fullmatch(r"-\w*m", word) and (module := "".join(rest[index + 1 : index + 2])):
            return 2 if _LAUNCHER_MODULE.match(module) else int(module not in _HELPER_MODULES)
        if word.endswith(".py") or word.startswith("$"):
            return 1
    return 0


def _judge_inner(rest: list[str]) -> int:
    """Return how much the words behind another program start one that trains, as those of `conda run` or `numactl`."""
    starts = (index for index, word in enumerate(rest) if _STARTS.fullmatch(word.rpartition("/")[2]))
    return min(1, _judge_python(rest[next(starts, len(rest)) + 1 :]))


def _is_helper(rest: list[str]) -> bool:
    """Return whether the words behind a launcher name a program that does not train, as `hostname`."""
    if "--version" in rest or "--help" in rest:
        return True
    for index, word in enumerate(rest):
        name = "" if word.startswith("-") else word.rpartition("/")[2]
        if name in _SHELLS and any(option in ("-c", "-lc", "-xc", "-ec") for option in rest[index + 1 : index + 3]):
            code = " ".join(rest[index + 1 :])
            return not _TRAINS_IN_TEXT.search(code) and any(one in _HELPERS for one in re.findall(r"[\w./-]+", code))
        if name in _HELPERS:
            return True
        if _TRAINS.fullmatch(name):
            return rest[index + 1 : index + 2] == ["-c"] or rest[index + 1 : index + 3] in (["-m", "pip"], ["-V"])
    return False


def _program(words: list[str]) -> list[str]:
    """Return the words from the program on, without what stands before it, as `time` or `timeout 60`."""
    while words:
        name, is_runner = words[0].rpartition("/")[2], " ".join(words[:2]) in _RUNNERS
        if name not in _PREFIXES and not is_runner:
            return words
        words = words[1 + is_runner :]
        while not is_runner and words and (words[0].startswith("-") or (name == "env" and "=" in words[0])):
            words = words[1 + (words[0] in _PREFIXES[name].split()) :]
        words = words[name == "timeout" :]  # its time
    return []


def _words(node: Node) -> list[str]:
    """Return the words of a command as they are written, without quotes around them and without assignments."""
    named = [child for child in node.children if child.type not in ("variable_assignment", "herestring_redirect")]
    return [_text(child).strip("\"'") for child in named]


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _find_repeated(chosen: _Candidate) -> bytes:
    """Return the text that runs between two starts of the launch; empty where it is started once."""
    functions = [one for one in chosen.around if one.type == "function_definition"]
    names = [[_text(name)] for one in functions if (name := one.child_by_field_name("name"))]
    calls = [one for one in _commands(chosen.around[0]) if _words(one.node)[:1] in names]
    loops = [node for one in (chosen, *calls) for node in one.around if node.type in _LOOPS]
    if len(calls) <= 1 and (not loops or _background_loop(chosen)):
        return b""
    whole = chosen.around[0].text or b""
    between = whole[calls[0].node.start_byte : calls[-1].node.end_byte] if calls else b""
    return b"\n".join([between, *(node.text or b"" for node in (*loops, *functions))])


def _find_varying(text: bytes, launch: bytes, script: bytes) -> Iterator[str]:
    """Yield the variables that a text of shell sets and the launch gets, as words; some of these may never be set."""
    found = {name: None for match in _SETS.findall(text) for name in re.findall(rb"\b[A-Za-z_]\w*", b" ".join(match))}
    for name in found:
        is_exported = re.search(rb"\b(?:export|declare|typeset)\b[^;&|\n]*\b%b\b|\bset -a|\ballexport\b" % name, script)
        if not (is_exported or re.search(rb"\$\{?[#!]?%b\b" % name, launch)):
            continue  # as of a loop that only counts how often it tries again
        is_array = re.search(rb"\b%b(=\(|\[)" % name, text)
        yield f'"${{{name.decode()}{"[@]" if is_array else ""}-}}"'


def _launch(chosen: _Candidate, text: bytes, place: str) -> Launch:
    """Return the launch of a candidate: the command, or the loop that starts it on each node, or its here-document."""
    first = last = chosen.node
    around = list(chosen.around)
    if loop := _background_loop(chosen):
        behind = (one for one in (loop.parent or loop).children if one.start_byte > loop.start_byte)
        waits = (one for one in behind if one.type == "command" and _words(one)[:1] == ["wait"])
        first, last = loop, next(waits, loop)
        if first is last:
            raise UsageError(
                f"{place} {loop.start_point[0] + 1}: this loop starts the ranks in the background, and no `wait` "
                "follows it; put one behind it"
            )
        around = around[: around.index(loop)]
    elif around and around[-1].type == "redirected_statement":
        here = next((one for one in around[-1].children if one.type == "heredoc_redirect"), None)
        if here:
            if re.match(r"[^\n]*&\s*\n", _text(here)):
                raise UsageError(
                    f"{place} {chosen.line}: a here-document feeds the launch in the background; put it into a file"
                )
            first = last = around.pop()
    start, end, repeated = first.start_byte, last.end_byte, _find_repeated(chosen)
    body = text[start:end]
    is_exec = first is chosen.node and _words(first)[:1] == ["exec"]
    body = re.sub(rb"\Aexec\s+(?!-)", b"", body) if is_exec else body
    at = (*around[1:], first)[0].start_byte
    head = text.rfind(b"\n", 0, at) + 1
    whole = around[-1] if around and around[-1].type == "redirected_statement" else last
    is_background = whole.next_sibling is not None and whole.next_sibling.type == "&"
    return Launch(
        start=start,
        end=end,
        function_at=at if text[head:at].strip() else head,
        line=first.start_point[0] + 1,
        text=body,
        is_exec=is_exec,
        is_background=is_background,
        is_repeated=repeated != b"",
        varying=tuple(_find_varying(repeated, body, text)),
    )


def _background_loop(chosen: _Candidate) -> Node | None:
    """Return the outermost loop around a command that it starts in the background; None without one."""
    path = (*chosen.around, chosen.node)
    for loop, group, inner in reversed([*zip(path, path[1:], path[2:], strict=False)]):
        if group.type == "do_group":
            return loop if inner.next_sibling and inner.next_sibling.type == "&" else None
    return None


def _explain_choice(place: str, chosen: _Candidate, others: list[_Candidate]) -> Iterator[str]:
    if others:
        lines = ", ".join(str(one.line) for one in sorted(others, key=lambda one: one.line))
        yield (
            f"{place} {chosen.line} starts the ranks; what stands as it was: line{'s' * (len(others) > 1)} {lines}; "
            "--launch-line N chooses another"
        )
    if _find_repeated(chosen):
        yield f"{place} {chosen.line} runs more than once, so each of its trainings is supervised by itself"


def _explain_one_node(place: str, found: Sequence[_Candidate], nodes: int) -> Iterator[str]:
    """Yield what to type instead of commands that start processes only on the node of the script, which waits."""
    first, *others = (" ".join(_program(_words(one.node))) for one in found)
    next_ones = (node.next_sibling for one in found for node in (*one.around, one.node))
    is_waited_for = not any(node and node.type == "&" for node in next_ones)
    if nodes > 1 and is_waited_for and all(map(_ON_ONE_NODE.match, (first, *others))):
        number = "its processes" if re.search(r"torchrun|accelerate|torch\.distributed", first) else "one process"
        program = re.search(r"-m (?!torch\.distributed)\S+|\S+\.py\b", first)
        yield (
            f"{place} {found[0].line}: {first.split()[0]} starts {number} on the first of {nodes} nodes alone; to "
            f"start one for each GPU, type: slurmddp submit --nodes {nodes} {program[0] if program else 'train.py'} ..."
        )


def _explain_others(root: Node, place: str, path: str) -> Iterator[str]:
    """Yield a line for each statement by which the script submits itself."""
    for one in _commands(root):
        words = _program(_words(one.node))
        guarded = any(
            node.type == "if_statement" and "SLURM_JOB" in _text(node).partition("then")[0] for node in one.around
        )
        own = (path, path.rpartition("/")[2], "$0", "${0}", "$BASH_SOURCE", "${BASH_SOURCE[0]}")
        if words and words[0] == "sbatch" and not guarded and any(word in own for word in words[1:]):
            yield (
                f"{place} {one.line} submits the script again; slurmddp requeues the job by itself, so that two jobs "
                "would go on: leave the line out"
            )


def _explain_none(root: Node, path: str) -> str:
    """Return why no statement can be wrapped, with the line that is in the way."""
    for one in _commands(root):
        words = _program(_words(one.node))
        if words and words[0] in _REMOTE and any(map(_TRAINS_IN_TEXT.search, words[1:])):
            return (
                f"{quote_value(path)}, line {one.line}: {words[0]} starts the ranks, and Slurm neither knows nor ends "
                "what it starts; start them by srun, as in: srun --ntasks-per-node=1 torchrun ..."
            )
    hidden = next((node for node in _hidden(root) if _judge(node)[0] == 2), None)  # noqa: PLR2004
    if hidden:
        return (
            f"{quote_value(path)}, line {hidden.start_point[0] + 1}: the output of the launch is taken by $(...), so "
            "it cannot be started again; write it as a line of its own"
        )
    return f"{quote_value(path)} has no line that starts the ranks, as `srun python train.py`; --launch-line N names it"


def _hidden(node: Node) -> Iterator[Node]:
    """Yield the commands in substitutions."""
    for child in node.children:
        if child.type == "command" and node.type == "command_substitution":
            yield child
        yield from _hidden(child)
