"""How often honest code is flagged as suspicious by its words (`games.code.suspicion`), on real packages.

    python tests/attacks/flagged.py [SOURCE]... [--names]

For every function of the packages, tests left out, it flags: each procedural bug's repair against the broken file (the
verifier, which compares with the clean file, sees no change in it at all); the function rewritten without a change of
meaning; and, as an upper bound, the function as if all of it were new to its file. Nothing is run. Reports, gates
nothing.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from differing import rewritten

from selfplay.cache import cache_folder
from selfplay.games.code import edits
from selfplay.games.code.mutate import mutations
from selfplay.games.code.protected import is_test
from selfplay.games.code.source import fetch
from selfplay.games.code.suspicion import flags_of
from selfplay.games.code.warmup import functions_of_file

SOURCES = ("pypi:toolz==1.2.0", "pypi:boltons==26.2.0", "pypi:more-itertools==10.8.0")
KINDS = ("repairs, against the broken file", "rewritings", "functions as if new")


def main() -> int:
    """Print the shares of each source and of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", default=SOURCES)
    parser.add_argument("--names", action="store_true", help="say what is flagged")
    asked = parser.parse_args()
    whole: Counter[tuple[str, bool]] = Counter()
    for source in asked.sources:
        found = measured(source, names=asked.names)
        tell(source, found)
        whole += found
    tell("all", whole)
    return 0


def measured(source: str, *, names: bool) -> Counter[tuple[str, bool]]:
    """How many of each kind are flagged, and are not, in one source."""
    repository = fetch(source, cache=cache_folder())
    found: Counter[tuple[str, bool]] = Counter()
    for path in repository.files:
        if not path.endswith(".py") or is_test(path):
            continue
        clean = repository.read(path)
        for function in functions_of_file(repository.root / path, name=path):
            if clean.count(function.source) != 1:
                continue
            for kind, before, after in changes(function.source):
                flags = flagged(before, after, source=function.source, clean=clean)
                found[kind, bool(flags)] += 1
                if names and flags:
                    print(f"    {kind}: {function.name}: {'; '.join(flags)}")
    return found


def changes(source: str) -> list[tuple[str, str, str]]:
    """Honest changes of one function: kind, the function before, the function after."""
    found = [(KINDS[0], edits.apply(source, mutation.edit), source) for mutation in mutations(source)]
    indent = source[: len(source) - len(source.lstrip())]
    new = rewritten(textwrap.dedent(source))
    if new is not None:
        found.append((KINDS[1], source, textwrap.indent(new, indent)))
    return [*found, (KINDS[2], "", source)]


def flagged(before: str, after: str, *, source: str, clean: str) -> tuple[str, ...]:
    """What is flagged in a change of the function `source` of the file `clean`."""
    # note: what the function's lines alone have no flags for has none in its file, which takes long to read; but for
    # comparisons, which count in classes only.
    special = source.lstrip().startswith("def __")
    if not special and not flags_of(textwrap.dedent(before), textwrap.dedent(after)):
        return ()
    return flags_of(clean.replace(source, before), clean.replace(source, after))


def tell(source: str, found: Counter[tuple[str, bool]]) -> None:
    """Print one source's shares."""
    print(source)
    for kind in KINDS:
        flagged, total = found[kind, True], found[kind, True] + found[kind, False]
        print(f"    {flagged:>4} of {total:<6}{flagged / max(total, 1):>6.1%}  {kind}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
