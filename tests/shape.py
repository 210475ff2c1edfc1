"""The shape of the code in numbers: `python tests/shape.py [TREE]` prints them for this tree or another checkout.

- lines of interfaces.py; required and optional members of each contract
- `type: ignore`; `getattr`, `hasattr`, `isinstance`
- the longest function, the largest room
- the files that one training step enters, and how many of them it enters again after leaving (traced, not counted by
  hand), for `pretrain` and for `finetune classify`
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CONTRACTS = ("Tokenizer", "Backbone", "Objective", "SelfUpdatingObjective", "Task")
LOOKUPS = ("getattr", "hasattr", "isinstance")


def sources(tree: Path) -> dict[str, str]:
    package = tree / "src" / "keel"
    return {str(path.relative_to(package)): path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}


def contract_members(source: str) -> dict[str, dict[str, list[str]]]:
    """Required: abstract methods, protocol methods and attributes without a value. Optional: what may be overridden."""
    found = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef) or node.name not in CONTRACTS:
            continue
        protocol = any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
        required, optional = [], []
        for member in node.body:
            if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                (required if member.value is None else optional).append(member.target.id)
            elif isinstance(member, ast.Assign):
                optional += [target.id for target in member.targets if isinstance(target, ast.Name)]
            elif isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                marks = {mark.id for mark in member.decorator_list if isinstance(mark, ast.Name)}
                if "final" not in marks:
                    (required if protocol or "abstractmethod" in marks else optional).append(member.name)
        # What __init__ sets for every member is given, not asked for.
        found[node.name] = {"required": [m for m in required if m != "config"], "optional": optional}
    return found


def longest_function(files: dict[str, str]) -> tuple[int, str]:
    functions = [
        (node.end_lineno - node.lineno + 1, f"{name}:{node.name}")
        for name, source in files.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    return max(functions)


def largest_room(files: dict[str, str]) -> tuple[int, str]:
    rooms = Counter(str(Path(name).parent) for name in files if not name.endswith("__init__.py"))
    room, count = rooms.most_common(1)[0]
    return count, room


def static_counts(tree: Path) -> dict[str, Any]:
    files = sources(tree)
    calls = Counter(
        node.func.id
        for source in files.values()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LOOKUPS
    )
    return {
        "files": len(files),
        "lines": sum(source.count("\n") for source in files.values()),
        "interfaces.py": files["interfaces.py"].count("\n"),
        "contracts": {
            name: {kind: len(members) for kind, members in parts.items()}
            for name, parts in contract_members(files["interfaces.py"]).items()
        },
        "type: ignore": sum(len(re.findall(r"# type: ignore", source)) for source in files.values()),
        **dict(calls),
        "longest function": longest_function(files),
        "largest room": largest_room(files),
    }


TRACED = """
import json, sys
from pathlib import Path
from keel.cli import main
from keel.training import loop
package = str(Path(loop.__file__).parent.parent)
entered, steps = [], [0]

def watch(frame, event, argument):
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(package) and not frame.f_code.co_name.startswith("<"):
        name = file[len(package) + 1 :]
        if not entered or entered[-1] != name:
            entered.append(name)

gradients, update = loop._gradients, loop._update

def traced_gradients(*given):
    steps[0] += 1
    if steps[0] == 3:
        sys.setprofile(watch)
    return gradients(*given)

def traced_update(*given):
    result = update(*given)
    sys.setprofile(None)
    return result

loop._gradients, loop._update = traced_gradients, traced_update
assert main.run(json.loads(sys.argv[1])) == 0
print("TRACE " + json.dumps(entered))
"""


def trace(tree: Path, *arguments: object) -> list[str]:
    """The files that the third step of a run enters, in order."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", TRACED, json.dumps([str(argument) for argument in arguments])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("TRACE ")]
    entered: list[str] = json.loads(line.removeprefix("TRACE "))
    return entered


def run(tree: Path, *arguments: object) -> None:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    code = "import sys; from keel.cli.main import main; main()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    subprocess.run(command, env=environment, check=True, capture_output=True)


def traces(tree: Path) -> dict[str, list[str]]:
    """A step of `pretrain` (BERT of one layer) and of `finetune classify` on the model that it gives."""
    changes = {"model.backbone.layers": 1, "model.backbone.width": 32, "model.backbone.heads": 2, "data.length": 32}
    changes |= {"model.backbone.feed_forward": 48, "training.steps": 5, "training.batch_tokens": 256}
    small = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sentences = [f"the {who} {does} the keel. it is {n} o'clock." for n in range(60) for who, does in PARTS]
        (folder / "texts.jsonl").write_text("".join(json.dumps({"text": s}) + "\n" for s in sentences))
        (folder / "train.tsv").write_text("text\tlabel\n" + "".join(f"{s}\t{len(s) % 2}\n" for s in sentences[:40]))
        tokenizer, corpus, model = folder / "tokenizer", folder / "corpus", folder / "model"
        run(tree, "tokenizer", "train", folder / "texts.jsonl", "--vocab-size", 120, "--out", tokenizer, "-q")
        run(tree, "corpus", "build", folder / "texts.jsonl", "--tokenizer", tokenizer, "--out", corpus, "-q")
        given = ("--corpus", corpus, "--out", model, "--threads", 1, "-q")
        pretrain = trace(tree, "pretrain", "bert-tiny", *given, *small)
        labelled = ("--train", folder / "train.tsv", "--dev", folder / "train.tsv", "--out", folder / "tuned")
        finetune = trace(tree, "finetune", model, "classify", *labelled, "--threads", 1, "-q")
    return {"pretrain": pretrain, "finetune classify": finetune}


PARTS = (("captain", "watches"), ("sailor", "repairs"), ("gull", "follows"))


def summary(entered: list[str]) -> dict[str, int]:
    times = Counter(entered)
    return {"files": len(times), "entered again": sum(count > 1 for count in times.values())}


if __name__ == "__main__":
    checkout = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    steps = traces(checkout)
    print(json.dumps(static_counts(checkout) | {verb: summary(e) for verb, e in steps.items()}, indent=2))
    print(json.dumps({verb: list(dict.fromkeys(entered)) for verb, entered in steps.items()}, indent=2))
