"""Leave the sites that a person drains: what is free goes at once, what is busy when its jobs have ended.

Where the drain of a site ends earlier, what is still there is handed back to Slurm.
"""

from collections.abc import Iterator

from cmscale.model import Goal, NodeName, Power, Snapshot, Want


def propose(view: Snapshot, claimed: frozenset[NodeName], _: object) -> Iterator[Goal]:
    for node in view.nodes.values():
        drained = view.drained(node.site)
        if drained is None or node.pool is None or node.name in claimed:
            continue
        # What failed is taken out of service by its own rules, and a helper goes after those that it helps.
        if node.sick or (node.outside and node.idle_since is None):
            continue
        if node.power in {Power.ON, Power.STARTING}:
            yield Goal(node.name, Want.GONE, f"{node.site} is drained: {drained.why}")
