"""Where a budget with `at_limit = "drain"` is spent, machines go as soon as no job runs on them.

Nodes get no new jobs, jobs that run there run to their end, and what is idle is given back at once. Of a user's or an
account's budget these are the machines that were started for them.
"""

from collections.abc import Iterator

from cmscale.model import AtLimit, Goal, Node, NodeName, Payer, Power, Purse, Snapshot, Want


def propose(view: Snapshot, claimed: frozenset[NodeName], _: object) -> Iterator[Goal]:
    spent = [purse for purse in view.purses if purse.gone and purse.budget.at_limit is AtLimit.DRAIN]
    for node in view.nodes.values() if spent else ():
        if node.pool is None or node.name in claimed or node.power is not Power.ON:
            continue
        purse = next((purse for purse in spent if _pays_for(purse, view, node)), None)
        if purse:
            yield Goal(node.name, Want.GONE, f"budget {purse.budget.name} ({purse.budget.text}) is spent")


def _pays_for(purse: Purse, view: Snapshot, node: Node) -> bool:
    if node.pool is None or not purse.concerns(view.pools[node.pool]):
        return False
    owner = view.owners.get(node.name, Payer())
    return not purse.budget.personal or purse.who == (owner.user if purse.budget.user else owner.account)
