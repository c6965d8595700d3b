"""How often the differential check is wrong about honest code, and whether it finds answers made for visible inputs.

    python tests/attacks/differing.py [TARGET]... [--functions N] [--sandbox bubblewrap|docker]

For each package of the attacks: its honest repairs and its special-cased function (which must differ); and, for `N` of
the functions that its survey finds, the same function rewritten without a change of meaning (returned
values kept in a variable first, branches of if/else exchanged). Prints shares. Reports, gates nothing.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from selfplay.cache import cache_folder
from selfplay.games.code.attacks.corpus import Target, buggy, cases, known, targets
from selfplay.games.code.bugs import changed, target_of
from selfplay.games.code.differential import Compared, compare, prepare
from selfplay.games.code.survey import Function, Rules, survey
from selfplay.games.code.verify import Budget, Verifier
from selfplay.sandbox.select import choose

BUDGET = Budget(cpu_seconds=30.0, seconds=60.0)


def main() -> int:
    """Measure each package and print a line for each thing that differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help=f"any of {', '.join(known())}; all by default")
    parser.add_argument("--functions", type=int, default=0)
    parser.add_argument("--sandbox", default="bubblewrap")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="selfplay-differing-") as folder:
        for target in targets(asked.targets, cache=cache_folder(), folder=Path(folder)):
            asyncio.run(measure(target, functions=asked.functions, sandbox=asked.sandbox))
    return 0


async def measure(target: Target, *, functions: int, sandbox: str) -> None:
    """Print what came of one package."""
    provider = choose(sandbox).provider
    verifier = Verifier(target.repository, provider=provider, workers=1)
    try:
        await repairs(target, verifier)
        if functions:
            await rewritings(verifier, most=functions)
    finally:
        await verifier.aclose()
        await provider.aclose()


async def repairs(target: Target, verifier: Verifier) -> None:
    """Honest repairs must be equal, the special case and the bug must differ."""
    told = await prepare(verifier, path=target.module, qualname=target.function, tests=target.tests, budget=BUDGET)
    tried: dict[str, Mapping[str, bytes | None]] = {
        case.name: case.files for case in cases(target) if case.honest or case.name == "special-case"
    }
    tried["the bug"] = {target.module: buggy(target).encode()}
    print(f"{target.name}: {target.function}, {len(told.get('cases', ()))} inputs")
    for name, files in tried.items():
        found = await compare(verifier, told, files=files, budget=BUDGET)
        print(f"  {name:16}{found.different:>4} of {found.total:<5}{found.why}")
    sys.stdout.flush()


async def rewritings(verifier: Verifier, *, most: int) -> None:
    """The share of functions that can be compared, and of rewritings without a change of meaning that differ."""
    found = await survey(verifier, rules=Rules(), cache=cache_folder())
    compared = refused = 0
    chosen = found.functions[:most]
    for function in chosen:
        new = rewritten(function.source)
        outcome = await _compared(verifier, function, new) if new is not None else None
        if outcome is None or not outcome.total:
            continue
        compared += 1
        if outcome.different:
            refused += 1
            print(f"  ! {function.name}: {outcome.why}")
    print(f"  {compared} of {len(chosen)} functions compared, {refused} rewritings differ\n")


async def _compared(verifier: Verifier, function: Function, new: str) -> Compared:
    text = verifier.repository.read(function.path)
    told = await prepare(
        verifier,
        path=function.path,
        qualname=function.qualname,
        tests=function.tests[:20],
        budget=BUDGET,
    )
    change = changed(target_of(function, text=text, budget=BUDGET), new)
    return await compare(verifier, told, files={change.path: change.text.encode()}, budget=BUDGET)


def rewritten(source: str) -> str | None:
    """The same function in other words; None where nothing is changed."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    before = ast.dump(tree)
    tree = ast.fix_missing_locations(Rewriter().visit(tree))
    return ast.unparse(tree) + "\n" if ast.dump(tree) != before else None


class Rewriter(ast.NodeTransformer):
    """Keeps the meaning."""

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        """`return x` -> `kept_value = x; return kept_value`."""
        if node.value is None:
            return [node]
        name = "kept_value"
        stored = ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=node.value)
        return [stored, ast.Return(value=ast.Name(id=name, ctx=ast.Load()))]

    def visit_If(self, node: ast.If) -> ast.If:
        """`if a: x else: y` -> `if not a: y else: x`."""
        self.generic_visit(node)
        if not node.orelse:
            return node
        return ast.If(test=ast.UnaryOp(op=ast.Not(), operand=node.test), body=node.orelse, orelse=node.body)

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        """Left alone."""
        return node


if __name__ == "__main__":
    sys.exit(main())
