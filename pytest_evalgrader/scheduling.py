"""A load scheduler for xdist whose queues are deep enough for calls to run ahead of their items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdist.scheduler.load import LoadScheduling


class AheadScheduling(LoadScheduling):  # type: ignore[misc]
    """Keep at least `depth` items over all workers handed out while any are pending.

    xdist's own queues shrink to two items a worker, which starves a look-ahead: with two workers and two items each,
    four calls are in flight, whatever the limit is.

    Args:
        depth: Items over all workers that should be handed out.
        wanted: Says whether any sample of the run waits for calls; else xdist's own chunking is kept.
    """

    def __init__(self, config: Any, log: Any, *, depth: int, wanted: Callable[[], bool]) -> None:
        super().__init__(config, log)
        self._depth = depth
        self._wanted = wanted

    def schedule(self) -> None:
        """Hand out the first items, then fill each queue up to its depth."""
        super().schedule()
        for node in self.nodes:
            self.check_schedule(node)

    def check_schedule(self, node: Any, duration: float = 0) -> None:
        """Fill a worker's queue where it is below its depth."""
        if node.shutting_down:
            return
        if not self.pending or not self._wanted():
            super().check_schedule(node, duration)
            return
        nodes = len(self.node2pending)
        lowest = max(2, -(-self._depth // nodes) + 2, len(self.pending) // nodes // 4)
        have = len(self.node2pending[node])
        if have < lowest:
            share = -(-len(self.pending) // nodes)
            self._send_tests(node, min(max(lowest, len(self.pending) // nodes // 2) - have, max(share, 2 - have)))
