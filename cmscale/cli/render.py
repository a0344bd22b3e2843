"""How is what we know shown: as lines for people, or as one JSON object for programs?"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cmscale.adapters.slurm.hostlist import fold
from cmscale.core.explain import decision
from cmscale.model import Action, Node, Plan, Power, Snapshot, Verb


def as_json(value: Any) -> str:
    """One JSON object on one line; dataclasses become objects, enums their words."""
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value) if isinstance(value, Path) else repr(value)


def console(*, stderr: bool = False) -> Console:
    return Console(highlight=False, soft_wrap=True, stderr=stderr)


def decisions(actions: Iterable[Action]) -> list[str]:
    """One line for each group of alike actions."""
    together: dict[tuple[Verb, str], list[Action]] = defaultdict(list)
    for action in actions:
        together[action.verb, action.reason].append(action)
    return [
        decision(verb, fold([action.node for action in group]), reason, len(group))
        for (verb, reason), group in together.items()
    ]


def plan_lines(view: Snapshot, plan: Plan) -> list[str]:
    """The whole plan: what would be done, what was refused, what can never be."""
    if plan.idle_because:
        return [plan.idle_because]
    lines = decisions(plan.actions)
    refused: dict[tuple[str, str], list[str]] = defaultdict(list)
    for refusal in plan.refused:
        refused[refusal.guard, refusal.why].append(refusal.goal.node)
    lines += [f"refused by {guard}: {fold(nodes)}: {why}" for (guard, why), nodes in refused.items()]
    lines += [f"policy {failure.policy} failed: {failure.why}" for failure in plan.failed]
    lines += [f"no pool can ever serve job {job}: {why}" for job, why in plan.never.items()]
    unknown = sorted({job.reason or "None" for job in view.jobs if job.pending and job.help.name == "ASK_AGAIN"})
    if unknown:
        lines.append(f"asked again next tick: jobs that wait for {'; '.join(unknown)}")
    lines += [f"unreadable: {sentence}" for sentence in view.unreadable]
    lines += [f"site {site.name} could not be read: {site.unseen}" for site in view.sites.values() if site.unseen]
    return lines or ["Nothing to do."]


def plan_json(view: Snapshot, plan: Plan) -> dict[str, Any]:
    return {
        "tick": plan.tick,
        "now": plan.now,
        "idle_because": plan.idle_because,
        "jobs": len(view.jobs),
        "nodes": len(view.nodes),
        "actions": plan.actions,
        "refused": plan.refused,
        "failed": plan.failed,
        "never": dict(plan.never),
        "notes": dict(plan.notes),
        "unreadable": view.unreadable,
        "unseen": _unseen(view),
    }


def _unseen(view: Snapshot) -> dict[str, str]:
    slurm = {"slurm": view.unseen} if view.unseen else {}
    return slurm | {str(site.name): site.unseen for site in view.sites.values() if site.unseen}


def status_json(view: Snapshot, plan: Plan, daemon: Mapping[str, Any]) -> dict[str, Any]:
    pools = [
        {
            "name": pool.name,
            "site": pool.site,
            "up": _count(view, pool.name, Power.ON),
            "starting": _count(view, pool.name, Power.STARTING),
            "stopping": _count(view, pool.name, Power.STOPPING),
            "most": pool.most,
            "price_hour": pool.price_hour,
            "closed": view.closed[pool.name].why if pool.name in view.closed else "",
        }
        for pool in view.pools.values()
    ]
    pending = [job for job in view.jobs if job.pending]
    return {
        "daemon": dict(daemon),
        "sites": [{"name": site.name, "region": site.region, "unseen": site.unseen} for site in view.sites.values()],
        "pools": pools,
        "jobs": {
            "pending": sum(job.count for job in pending),
            "running": sum(1 for job in view.jobs if job.state == "RUNNING"),
            "more_nodes_would_help": sum(job.count for job in pending if job.help.name == "NODES"),
            "never": dict(plan.never),
        },
        "price_hour": sum(
            view.pools[node.pool].price_hour for node in view.nodes.values() if node.pool and node.machine
        ),
        "unseen": _unseen(view),
        "unreadable": view.unreadable,
    }


def _count(view: Snapshot, pool: str, power: Power) -> int:
    return sum(1 for node in view.nodes.values() if node.pool == pool and node.power is power)


def status_lines(told: Mapping[str, Any], out: Console) -> None:
    daemon = told["daemon"]
    if daemon.get("running"):
        age_s = daemon.get("age_s")
        last = f", last look {age_s:.0f} s ago" if age_s is not None else ""
        out.print(f"daemon   running as process {daemon['pid']}, mode {daemon['mode']}{last}")
    else:
        out.print(f"daemon   not running (mode in the configuration: {daemon['mode']}); start it with: cm-scale run")
    for where, why in told["unseen"].items():
        out.print(f"unseen   {where}: {why}")
    jobs = told["jobs"]
    out.print(
        f"jobs     {jobs['running']} running, {jobs['pending']} pending; "
        f"more nodes would help {jobs['more_nodes_would_help']}; {len(jobs['never'])} no pool can ever serve"
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("pool", "site", "up", "starting", "stopping", "most", "$/h each", ""):
        table.add_column(
            heading, justify="right" if heading in {"up", "starting", "stopping", "most", "$/h each"} else "left"
        )
    for pool in told["pools"]:
        numbers = [str(pool[key]) for key in ("up", "starting", "stopping", "most")]
        closed = f"closed: {pool['closed']}" if pool["closed"] else ""
        table.add_row(pool["name"], pool["site"], *numbers, f"{pool['price_hour']:g}", closed)
    out.print(table)
    out.print(f"machines cost ${told['price_hour']:.2f} an hour now")
    for sentence in told["unreadable"]:
        out.print(f"unreadable: {sentence}")
    if jobs["never"]:
        out.print(f"Next: cm-scale explain job {next(iter(jobs['never']))}")


def node_json(view: Snapshot, node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "pool": node.pool,
        "site": node.site,
        "power": node.power.value,
        "slurm": sorted(node.states),
        "reason": node.reason,
        "machine": node.machine.id if node.machine else None,
        "address": node.address,
        "up_since": node.up_since,
        "idle_s": view.now - node.idle_since if node.idle_since is not None else None,
        "jobs": sorted(job.id for job in view.jobs if node.name in job.nodes),
        "sick": node.sick,
    }


def node_table(rows: Iterable[Mapping[str, Any]], now: float) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("node", "pool", "site", "power", "slurm", "machine", "up", "jobs", ""):
        table.add_column(heading)
    for row in rows:
        up = _span(now - row["up_since"]) if row["up_since"] else ""
        idle = f"idle {_span(row['idle_s'])}" if row["idle_s"] is not None else ""
        table.add_row(
            row["name"],
            row["pool"] or "-",
            row["site"],
            row["power"],
            "+".join(row["slurm"]).lower(),
            row["machine"] or "",
            up,
            ",".join(row["jobs"]),
            row["sick"] or idle,
        )
    return table


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
