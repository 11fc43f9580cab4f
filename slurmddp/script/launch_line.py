"""Finds the statement of a batch script that starts the ranks, by a parser of bash. Nothing of the script is run.

The only module that imports tree-sitter.
"""

import itertools
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import tree_sitter
import tree_sitter_bash
from tree_sitter import Node

from slurmddp.attach.site.sitecustomize import LAUNCHER_MODULES
from slurmddp.errors import UsageError
from slurmddp.text import quote_value

_BASH: Final = tree_sitter.Language(tree_sitter_bash.language())
_QUERY: Final = tree_sitter.Query(_BASH, Path(__file__).with_suffix(".scm").read_text(encoding="utf-8"))
_WAITS: Final = Path(__file__).with_suffix(".sh").read_bytes().rstrip()
"""What is put around a loop that starts launches in the background, cut behind `&`: a bare `wait` hides failures."""
_WORDS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_LAUNCHERS, _CONTAINERS, _SHELLS, _RUNNERS, _REMOTE, _HELPERS, _HELPER_MODULES, _ENTERED, _LOOPS = (
    frozenset(words) for words in _WORDS.values()
)
"""Names of programs, and of the parser's nodes, in the order of the file."""
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
_LEFT: Final = re.compile(rb"[ \t]*&(?!&)(?!([\s;]|#.*\n|\w+=\S*\s|trap .*\n)*wait\b)")
"""Behind a command that is started in the background, without a `wait` that follows at once."""
_POSITIONAL: Final = re.compile(rb"\$\{?[#!]?[1-9@*#]")
"""An argument of the script, or of a function."""


class Launch(NamedTuple):
    """The statement that starts the ranks."""

    line: int
    text: bytes
    is_repeated: bool
    """Whether it stands in a loop, or in a function that is called more than once."""
    wrapped: bytes
    """The script with the statement as a function, and in its place the word that has it supervised."""


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


def find_launch(path: str, text: bytes, line: int | None = None, nodes: int = 1) -> tuple[Launch, tuple[str, ...]]:
    """Return the launch of a script for so many nodes: the statement of that line, else what most looks like it.

    With it comes what the user is told of the script. Raises UsageError, with the line that is in the way, where no
    statement can be wrapped.
    """
    root = tree_sitter.Parser(_BASH).parse(text).root_node
    place = f"{quote_value(path)}, line"
    if line is not None:
        candidates = [one for one in _commands(root) if one.line <= line <= one.node.end_point[0] + 1][:1]
        if not candidates:
            raise UsageError(f"--launch-line {line}: {quote_value(path)} has no command there that can be wrapped")
    else:
        likely = (one for one in _commands(root) if one.strength)
        candidates = sorted(likely, key=lambda one: (one.is_one_task, -one.strength))
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
        yield _Candidate(node, around, *_judge(node))
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
            return 2 if module in LAUNCHER_MODULES else int(module not in _HELPER_MODULES)
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


def _find_repeated(chosen: _Candidate, place: str) -> list[range]:
    """Return the bytes of the script that run between two starts of the launch; none where it is started once.

    Raises UsageError where one start would come while an earlier one runs: a run has one supervisor at a time.
    """
    functions = [one for one in chosen.around if one.type == "function_definition"]
    names = [[_text(name)] for one in functions if (name := one.child_by_field_name("name"))]
    calls = [one for one in _commands(chosen.around[0]) if _words(one.node)[:1] in names]
    over_nodes = _background_loop(chosen)
    loops = [one for around in (chosen, *calls) for one in around.around if one.type in _LOOPS and one != over_nodes]
    if len(calls) <= 1 and not loops:
        return []
    for one in (*calls, *[chosen] * (not over_nodes)):
        inner = [*itertools.takewhile(lambda node: node.type not in _LOOPS, reversed(one.around))]
        nodes = (one.node, *(inner if len(inner) < len(one.around) else inner[:1]))
        if any(_LEFT.match(one.around[0].text or b"", node.end_byte) for node in nodes):
            raise UsageError(
                f"{place} {one.line} starts the ranks in the background again and again; write the launch with its `&` "
                "straight into the loop, without a function or `if` around it, and `wait` behind the loop"
            )
    between = [range(calls[0].node.start_byte, calls[-1].node.end_byte)] if calls else []
    return [*between, *(range(one.start_byte, one.end_byte) for one in (*loops, *functions))]


def _find_varying(root: Node, repeated: list[range], launch: range) -> Iterator[str]:
    """Yield, as words of a shell, the variables that are set before each start and that the launch gets."""
    found = tree_sitter.QueryCursor(_QUERY).captures(root)
    places = [one for one in found.get("set", ()) if one.start_byte not in launch]
    texts = [_text(one) for one in places if any(one.start_byte in part for part in repeated)]
    names = sorted({match[0] for text in texts if (match := re.match(r"[A-Za-z_]\w*", text))})
    for one in found.get("named", ()):
        if one.start_byte in launch and (name := _text(one)) in names:
            yield f'"${{{name}{"[@]" * (one.parent is not None and one.parent.type == "subscript")}-}}"'
    if names:
        yield f'"$(printenv {" ".join(names)})"'


def _launch(chosen: _Candidate, text: bytes, place: str) -> Launch:
    """Return the launch of a candidate: the command, or the loop that starts it on each node, or its here-document."""
    first = last = chosen.node
    around, started = list(chosen.around), None
    if loop := _background_loop(chosen):
        behind = (one for one in (loop.parent or loop).children if one.start_byte > loop.start_byte)
        waits = (one for one in behind if one.type == "command" and _words(one)[:1] == ["wait"])
        first, last = loop, next(waits, loop)
        if first is last:
            raise UsageError(
                f"{place} {loop.start_point[0] + 1}: this loop starts the ranks in the background, and no `wait` "
                "follows it; put one behind it"
            )
        started = (*around, chosen.node)[around.index(loop) + 2]
        around = around[: around.index(loop)]
    elif around and around[-1].type == "redirected_statement":
        here = next((one for one in around[-1].children if one.type == "heredoc_redirect"), None)
        if here:
            if re.match(r"[^\n]*&\s*\n", _text(here)):
                raise UsageError(
                    f"{place} {chosen.line}: a here-document feeds the launch in the background; put it into a file"
                )
            first = last = around.pop()
    start, end, repeated = first.start_byte, last.end_byte, _find_repeated(chosen, place)
    body = text[start:end]
    is_exec = first is chosen.node and _words(first)[:1] == ["exec"]
    body = re.sub(rb"\Aexec\s+(?!-)", b"", body) if is_exec else body
    if started:
        cut = started.start_byte
        turn, rest = text[cut : started.end_byte], text[started.end_byte : end].partition(b"&")[2]
        if started.type == "pipeline":  # of which `$!` is the last command alone
            turn = b"{ %b; }" % turn
        body = _WAITS % (text[start:cut] + turn + b" &", rest)
    functions = b"slurmddp_launch() {\n%b\n}\n" % body
    if repeated:
        varying = _find_varying(chosen.around[0], repeated, range(start, end))
        words = " ".join(dict.fromkeys(('"$@"', *varying)))
        functions = f"slurmddp_training() {{ printf '%s\\n' {words}; }}\n".encode() + functions
    at = (*around[1:], first)[0].start_byte
    head = text.rfind(b"\n", 0, at) + 1
    whole = around[-1] if around and around[-1].type == "redirected_statement" else last
    is_background = whole.next_sibling is not None and whole.next_sibling.type == "&"  # `$!` is a shell's already
    word = b"slurmddp_supervise" if is_background else b"slurmddp_run"
    word += b' "$@"' if repeated or _POSITIONAL.search(body) else b""
    word = b"{ %b; exit; }" % word if is_exec else word
    function_at = at if text[head:at].strip() else head
    wrapped = b"".join((text[:function_at], functions, text[function_at:start], word, text[end:]))
    return Launch(first.start_point[0] + 1, text[start:end] if started else body, bool(repeated), wrapped)


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
    if _find_repeated(chosen, place):
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
    substituted = tree_sitter.QueryCursor(_QUERY).captures(root).get("hidden", ())
    if hidden := next((node for node in substituted if _judge(node)[0] == 2), None):  # noqa: PLR2004
        return (
            f"{quote_value(path)}, line {hidden.start_point[0] + 1}: the output of the launch is taken by $(...), so "
            "it cannot be started again; write it as a line of its own"
        )
    return f"{quote_value(path)} has no line that starts the ranks, as `srun python train.py`; --launch-line N names it"
