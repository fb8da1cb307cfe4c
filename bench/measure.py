"""CPU time and tables, for all benchmarks."""

import gc
import time
from collections.abc import Callable, Sequence


def cpu_us(work: Callable[[], object], units: int, repeats: int = 5) -> float:
    """The least CPU time of `repeats` runs, in microseconds per unit of work."""
    best = float("inf")
    for _ in range(repeats):
        gc.collect()
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best / units * 1e6


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [[*head], *([f"{c:.2f}" if isinstance(c, float) else str(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    print(f"\n{title}")
    for row in cells:
        print(
            "  "
            + "  ".join(
                c.ljust(w) if i == 0 else c.rjust(w)
                for i, (c, w) in enumerate(zip(row, widths, strict=False))
            )
        )
