"""A load scheduler for xdist whose queues are deep enough for calls to run ahead of their items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from xdist.scheduler.load import LoadScheduling


class AheadScheduling(LoadScheduling):  # type: ignore[misc]
    """Keep at least `depth` items over all workers handed out while any are pending, from the first ready worker on.

    xdist's own queues shrink to two items a worker, which starves a look-ahead: with two workers and two items each,
    four calls are in flight, whatever the limit is. It also lets every worker wait until the last one has collected.

    Args:
        depth: Items over all workers that should be handed out.
        wanted: Says whether any sample of the run waits for calls; else xdist's own chunking is kept.
    """

    collection: list[str] | None

    def __init__(self, config: Any, log: Any, *, depth: int, wanted: Callable[[], bool]) -> None:
        super().__init__(config, log)
        self._depth = depth
        self._wanted = wanted
        self._unchecked = False

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Take what a worker collected; the first one that is ready starts while the others still load."""
        super().add_node_collection(node, collection)
        if self.collection_is_completed or not collection:
            return  # `schedule` follows
        if self.collection is None:
            if not self._wanted():
                return
            self.collection = list(collection)
            self.pending[:] = range(len(collection))
            self.maxschedchunk = len(collection)
            self._unchecked = True
            self._end_status_line()
        if self.node2collection[node] == self.collection:
            self.check_schedule(node)

    def _end_status_line(self) -> None:
        """Keep xdist from writing the state of its workers over the line of results, which begins now."""
        reporter = self.config.pluginmanager.get_plugin("terminaldistreporter")
        if reporter is not None:
            reporter.setstatus = partial(reporter.setstatus, show=False)

    def schedule(self) -> None:
        """Hand out the first items, then fill each queue up to its depth."""
        if self._unchecked:
            self._unchecked = False
            if not self._check_nodes_have_same_collection():
                # The error is shown, as xdist shows it; what was already handed out is run.
                self.pending.clear()
                return
        super().schedule()
        for node in self.nodes:
            self.check_schedule(node)

    def check_schedule(self, node: Any, duration: float = 0) -> None:
        """Fill a worker's queue where it is below its depth."""
        if node.shutting_down or node not in self.node2collection:
            return
        if not self.pending or not self._wanted():
            super().check_schedule(node, duration)
            return
        nodes = len(self.node2pending) if self.collection_is_completed else self.numnodes
        ready = sum(other in self.node2collection for other in self.node2pending)
        lowest = max(2, -(-self._depth // ready) + 2, len(self.pending) // nodes // 4)
        have = len(self.node2pending[node])
        if have < lowest:
            share = -(-len(self.pending) // nodes)
            self._send_tests(node, min(max(lowest, len(self.pending) // nodes // 2) - have, max(share, 2 - have)))
