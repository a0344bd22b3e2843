"""What do the pools, partitions and budgets of the file say of one another, and where do they contradict?

Read from the file as it is written, before its schema is checked, so that these problems are told with all others. What
is malformed counts as missing here; the schema tells it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from cmscale.model import NodeName
from cmscale.shell.values import hostlist, nearest

Place = tuple[str, ...]
"""Where a value stands in the file: ("pools", "t4", "max")."""

MISSING = "missing; this key is required"
DRAINS = "respect_budgets"


@dataclass(frozen=True, slots=True)
class PoolWords:
    """What a pool says of others."""

    keys: frozenset[str]
    nodes: tuple[NodeName, ...]
    partitions: tuple[str, ...]
    helpers: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True)
class PartitionWords:
    """What a partition says of pools."""

    pools: tuple[str, ...]
    pin: bool


@dataclass(frozen=True, slots=True)
class BudgetWords:
    """What a budget says of others."""

    pool: str
    user: str
    account: str
    drains: bool


@dataclass(frozen=True, slots=True)
class Relations:
    """The pools, partitions and budgets of the file, by name, in its order."""

    pools: Mapping[str, PoolWords]
    partitions: Mapping[str, PartitionWords]
    budgets: Mapping[str, BudgetWords]
    policies: tuple[str, ...] | None
    """None: the shipped ones."""

    def startable(self, partition: str) -> frozenset[str] | None:
        """The only pools from which the partition's jobs start machines; None: all whose nodes are in it."""
        own = self._own(partition)
        allowed = frozenset(pool for pool in own if self._pinned_to(pool) in {None, partition})
        words = self.partitions.get(partition)
        return allowed if (words and words.pools) or len(allowed) < len(own) else None

    @property
    def served(self) -> tuple[str, ...]:
        """Every partition in which a pool has nodes."""
        return tuple(dict.fromkeys(partition for pool in self.pools.values() for partition in pool.partitions))

    def contradictions(self) -> Iterator[tuple[Place, str]]:
        """Each problem with its place."""
        yield from self._shared_names()
        yield from self._unmeasured()
        yield from self._unknown_helpers()
        yield from self._circles()
        yield from self._unknown_partitions()
        yield from self._unknown_pools()
        yield from self._pinned_elsewhere()
        yield from self._odd_budgets()

    # --- pools ---

    def _shared_names(self) -> Iterator[tuple[Place, str]]:
        """Pools that name a node which a pool before them names."""
        owner: dict[NodeName, str] = {}
        for name, pool in self.pools.items():
            if shared := [node for node in pool.nodes if node in owner]:
                yield ("pools", name, "nodes"), f'"{shared[0]}" is a node of pool "{owner[shared[0]]}" already'
            owner = dict.fromkeys(pool.nodes, name) | owner

    def _unmeasured(self) -> Iterator[tuple[Place, str]]:
        """Slurm must be told what its nodes have; of helpers it knows nothing."""
        for name, pool in self.pools.items():
            if pool.partitions:
                yield from ((("pools", name, key), MISSING) for key in ("cpus", "mem_mb") if key not in pool.keys)

    def _unknown_helpers(self) -> Iterator[tuple[Place, str]]:
        owner = self._owner()
        for name, pool in self.pools.items():
            place = ("pools", name, "helpers")
            for node in pool.helpers:
                if owner.get(node) == name:
                    yield place, f'"{node}" is a node of this pool itself; helpers are nodes of other pools'
                elif node not in owner:
                    others = owner.keys() - set(pool.nodes)
                    yield place, f'no other pool has a node "{node}"; {nearest(node, others)}'

    def _circles(self) -> Iterator[tuple[Place, str]]:
        """Pools none of which could ever start first."""
        owner = self._owner()
        waits_for = {
            name: [owner[node] for node in pool.helpers if owner.get(node, name) != name]
            for name, pool in self.pools.items()
        }
        try:
            TopologicalSorter(waits_for).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1][::-1]
            told = " -> ".join(circle)
            yield ("pools", circle[0], "helpers"), f"the pools wait for one another's helpers for ever: {told}"

    def _owner(self) -> dict[NodeName, str]:
        return {node: name for name, pool in self.pools.items() for node in pool.nodes}

    # --- partitions ---

    def _own(self, partition: str) -> tuple[str, ...]:
        """The pools from which the partition would start machines if no other pinned any."""
        words = self.partitions.get(partition)
        return (words and words.pools) or self._inside(partition)

    def _inside(self, partition: str) -> tuple[str, ...]:
        return tuple(name for name, pool in self.pools.items() if partition in pool.partitions)

    def _pinned_to(self, pool: str) -> str | None:
        """The first partition that wants the pool for its own jobs alone."""
        return next((name for name, words in self.partitions.items() if words.pin and pool in self._own(name)), None)

    def _unknown_partitions(self) -> Iterator[tuple[Place, str]]:
        for name in self.partitions:
            if name not in self.served:
                yield ("partitions", name), f'no pool is in a partition "{name}"; {nearest(name, self.served)}'

    def _unknown_pools(self) -> Iterator[tuple[Place, str]]:
        for name, words in self.partitions.items():
            inside = self._inside(name)
            for pool in words.pools:
                if inside and pool not in inside:
                    yield (
                        ("partitions", name, "pools"),
                        f'no pool "{pool}" is in this partition; {nearest(pool, inside)}',
                    )

    def _pinned_elsewhere(self) -> Iterator[tuple[Place, str]]:
        """What two partitions want, where one of them wants it alone and the other names it."""
        for name, words in self.partitions.items():
            for pool in self._own(name) if words.pin else words.pools:
                other = self._pinned_to(pool)
                if other not in {None, name}:
                    key = "pools" if words.pools else "pin"
                    yield ("partitions", name, key), f'pool "{pool}" is pinned to partition "{other}" already'

    # --- budgets ---

    def _odd_budgets(self) -> Iterator[tuple[Place, str]]:
        for name, budget in self.budgets.items():
            place = ("budgets", name)
            if budget.pool and budget.pool not in self.pools:
                yield (*place, "pool"), f'there is no pool "{budget.pool}"; {nearest(budget.pool, self.pools)}'
            if budget.user and budget.account:
                yield (*place, "account"), "a budget is a user's or an account's; make it two of them"
            if budget.drains and self.policies is not None and DRAINS not in self.policies:
                yield (*place, "at_limit"), f'"drain" is done by the policy {DRAINS}, which is not in cluster.policies'


def relations(raw: Mapping[str, Any]) -> Relations:
    """What the file says, as far as it can be read."""
    return Relations(
        {
            name: PoolWords(frozenset(pool), _nodes(pool, "nodes"), _words(pool, "partitions"), _nodes(pool, "helpers"))
            for name, pool in tables(raw, "pools")
        },
        {
            name: PartitionWords(_words(partition, "pools"), partition.get("pin") is True)
            for name, partition in tables(raw, "partitions")
        },
        {
            name: BudgetWords(
                _text(budget, "pool"),
                _text(budget, "user"),
                _text(budget, "account"),
                budget.get("at_limit") == "drain",
            )
            for name, budget in tables(raw, "budgets")
        },
        _words(cluster, "policies")
        if isinstance(cluster := raw.get("cluster"), dict) and "policies" in cluster
        else None,
    )


def tables(raw: Mapping[str, Any], key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Those of this kind, by name, that are tables at all."""
    found = raw.get(key)
    if isinstance(found, dict):
        yield from ((name, table) for name, table in found.items() if isinstance(table, dict))


def _text(table: Mapping[str, Any], key: str) -> str:
    text = table.get(key)
    return text if isinstance(text, str) else ""


def _nodes(table: Mapping[str, Any], key: str) -> tuple[NodeName, ...]:
    try:
        return hostlist(table.get(key))
    except ValueError:
        return ()


def _words(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    words = table.get(key)
    return tuple(word for word in words if isinstance(word, str)) if isinstance(words, list) else ()
