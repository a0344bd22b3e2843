"""How is what we know shown: as lines for people, or as one JSON object for programs?

Both are made of the same values. Lines are for a terminal of 80 columns and more: sentences wrap at its edge, tables
leave out their least telling columns; written to a file or a pipe, nothing is cut and nothing wraps.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from cmscale.adapters.slurm.hostlist import fold
from cmscale.cli.shared import date
from cmscale.core import compare, expiry
from cmscale.core.budgets import title
from cmscale.core.orphans import Orphan, judged, orphans
from cmscale.core.telling import decision
from cmscale.model import (
    Action,
    FactKind,
    Help,
    Job,
    Limits,
    Node,
    Plan,
    Pool,
    Power,
    Purse,
    Refusal,
    Snapshot,
    Verb,
    dollars,
)
from cmscale.ports import Backend
from cmscale.shell.markets import Price
from cmscale.shell.overrides import OVERRIDES, Hold, Kind, holds, together


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


def console() -> Console:
    """Standard output. A pipe has no edge, so a row of a table stays one line for grep and awk."""
    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=None if known else ENDLESS)


ENDLESS = 100_000


def number(count: int, word: str) -> str:
    """1 pool, 2 pools."""
    return f"{count} {word}{'' if count == 1 else 's'}"


# --- a plan ----------------------------------------------------------------------------------------------------------


def plan_lines(plan: Plan, would: str = "") -> list[str]:
    """What is decided: what is done, what was refused, what failed, what can never be."""
    if plan.idle_because:
        return [plan.idle_because]
    lines = [f"{would}{line}" for line in decisions(plan.actions)]
    refused: dict[tuple[str, str], list[str]] = defaultdict(list)
    for refusal in plan.refused:
        refused[refusal.guard, refusal.why].append(refusal.goal.node)
    lines += [f"refused by {guard}: {fold(nodes)}: {why}" for (guard, why), nodes in refused.items()]
    lines += [f"policy {failure.policy} failed: {failure.why}" for failure in plan.failed]
    lines += [f"no pool can ever serve job {job}: {why}" for job, why in plan.never.items()]
    return lines


def decisions(actions: Iterable[Action]) -> list[str]:
    """One line for each group of alike actions."""
    together: dict[tuple[Verb, str], list[Action]] = defaultdict(list)
    for action in actions:
        together[action.verb, action.reason].append(action)
    return [decision(verb, _whom(group), reason, len(group)) for (verb, reason), group in together.items()]


def _whom(actions: Iterable[Action]) -> str:
    """The nodes, or the jobs where the step is theirs alone."""
    nodes = [action.node for action in actions if action.node]
    jobs = [action.job for action in actions if action.job and not action.node]
    return ", ".join([*([fold(nodes)] if nodes else []), *(f"job {job}" for job in jobs)])


def asked_again(view: Snapshot) -> list[str]:
    """A line if Slurm has not said yet why some jobs wait."""
    unknown = sorted({job.reason or "None" for job in view.jobs if job.pending and job.help is Help.ASK_AGAIN})
    return [f"asked again next time: jobs that wait for {'; '.join(unknown)}"] if unknown else []


def trouble_lines(view: Snapshot) -> list[str]:
    """What could not be read: records, a site, all of Slurm; and machines that nothing explains."""
    return [*view.unreadable, *(orphan.text for orphan in orphans(view)), *unseen(view).values()]


def facts(view: Snapshot, plan: Plan) -> frozenset[object]:
    """What a plan says, without the figures in its sentences that change from second to second."""
    return compare.said(plan) | frozenset(trouble_lines(view))


def only_news(plan: Plan, told: Container[object]) -> Plan:
    """The plan without what has been told."""
    return replace(
        plan,
        actions=tuple(action for action in plan.actions if compare.step(action) not in told),
        refused=tuple(refusal for refusal in plan.refused if _refusal(refusal) not in told),
        failed=tuple(failure for failure in plan.failed if failure not in told),
        never={job: why for job, why in plan.never.items() if (job, why) not in told},
        idle_because="" if plan.idle_because in told else plan.idle_because,
    )


def _refusal(refusal: Refusal) -> object:
    return refusal.guard, refusal.goal.node, refusal.goal.want


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
        "waits": {job: wait.reason for job, wait in plan.waits.items()},
        "notes": dict(plan.notes),
        "unreadable": view.unreadable,
        "unseen": unseen(view),
    }


def unseen(view: Snapshot) -> dict[str, str]:
    """What could not be read, "slurm", a site, or the journal (read or written), and why."""
    slurm = {"slurm": view.unseen} if view.unseen else {}
    journal = {"journal": view.unrecorded} if view.unrecorded else {}
    return slurm | journal | {str(site.name): site.unseen for site in view.sites.values() if site.unseen}


def job_json(plan: Plan, job: Job, sentences: list[str]) -> dict[str, Any]:
    return {
        "id": job.id,
        "state": job.state,
        "reason": job.reason,
        "help": job.help,
        "sentences": sentences,
        "never": plan.never.get(job.id, ""),
        "note": plan.notes.get(job.id, ""),
    }


def in_a_line(view: Snapshot, plan: Plan) -> str:
    """The state of things for who has but one line for it."""
    if plan.idle_because:
        return plan.idle_because
    up, starting = (sum(1 for node in view.nodes.values() if node.pool and node.power is each) for each in _COMING)
    pending = sum(job.count for job in view.jobs if job.pending)
    blind = "".join(f"; {site} is not seen" for site in unseen(view))
    return f"{number(up, 'machine')} up, {starting} starting, {number(pending, 'job')} pending{blind}"


_COMING = (Power.ON, Power.STARTING)


# --- the state of things ---------------------------------------------------------------------------------------------


def status_json(
    view: Snapshot,
    plan: Plan,
    daemon: Mapping[str, Any],
    backend: Backend,
    *,
    limits: Limits,
    price_of: Callable[[Pool], Price],
) -> dict[str, Any]:
    pending = [job for job in view.jobs if job.pending]
    return {
        "now": view.now,
        "daemon": dict(daemon),
        "backend": backend,
        "sites": [
            {"name": site.name, "region": site.region, "unseen": site.unseen, "expires": site.expires}
            for site in view.sites.values()
        ],
        "expiring": [expiry.sentence(view, site) for site in expiry.soon(view)],
        "pools": [pool_json(view, pool, price_of(pool)) for pool in view.pools.values()],
        "jobs": {
            "pending": sum(job.count for job in pending),
            "running": sum(1 for job in view.jobs if job.state == "RUNNING"),
            "more_nodes_would_help": sum(job.count for job in pending if job.help is Help.NODES),
            "never": dict(plan.never),
        },
        "paused": view.fact(FactKind.PAUSE),
        "overrides": [hold for hold in holds(view.facts.values(), {}) if hold.kind in OVERRIDES],
        "price_hour": sum(_price_hour(view.pools[node.pool], node) for node in view.nodes.values() if node.pool),
        "budgets": [purse_json(purse) for purse in view.purses],
        "orphans": [orphan_json(view, *each) for each in judged(view, limits)],
        "unseen": unseen(view),
        "unreadable": view.unreadable,
    }


def pool_json(view: Snapshot, pool: Pool, price: Price) -> dict[str, Any]:
    return {
        "name": pool.name,
        "site": pool.site,
        "up": _count(view, pool.name, Power.ON),
        "starting": _count(view, pool.name, Power.STARTING),
        "stopping": _count(view, pool.name, Power.STOPPING),
        "stopped": _count(view, pool.name, Power.OFF),
        "most": pool.most,
        "price_hour": pool.price_hour,
        "price_from": price.source,
        "price_age_s": price.age_s(view.now),
        "closed": _closed(view, pool),
    }


def priced_by(source: str, age_s: float | None) -> str:
    """Who says what a machine costs, where it isn't the configuration."""
    if age_s is not None:
        return f"{source}, {_span(age_s)} old"
    return "" if source else "nobody knows it"


def _price_hour(pool: Pool, node: Node) -> float:
    if node.machine is None:
        return 0.0
    return pool.stopped_price_hour if node.power is Power.OFF else pool.price_hour


def _closed(view: Snapshot, pool: Pool) -> str:
    if closed := view.shut(pool):
        return f"for {_span(closed.until - view.now)} more ({closed.result.value}: {closed.why})"
    if slowed := view.slowed(pool.site):
        return f"no; the site asked for fewer calls, the next launch is in {slowed.until - view.now:.0f} s"
    if half_open := view.half_open(pool):
        return f"half-open, tried with one machine ({half_open.result.value}: {half_open.why})"
    return ""


def _count(view: Snapshot, pool: str, power: Power) -> int:
    return sum(1 for node in view.nodes.values() if node.pool == pool and node.power is power)


def status_lines(told: Mapping[str, Any], out: Console) -> None:
    daemon, jobs = told["daemon"], told["jobs"]
    out.print(f"daemon   {_daemon(daemon)}")
    for trouble in daemon["troubles"]:
        out.print(f"trouble  {trouble}")
    if paused := told["paused"]:
        who = f" by {paused.by}" if paused.by else ""
        end = f" for another {_span(paused.until - told['now'])}" if paused.until > told["now"] else ""
        out.print(f"paused   {paused.why}{who}{end}; nothing is started and nothing given back")
    for line in told["expiring"]:
        out.print(f"expiry   {line}")
    for line in _override_lines(told["overrides"], told["now"]):
        out.print(line)
    if "slurm" in told["unseen"]:
        return  # the rest would be made of nothing
    never = f", no pool can ever serve {len(jobs['never'])}" if jobs["never"] else ""
    out.print(
        f"jobs     {jobs['running']} running, {jobs['pending']} pending; "
        f"more nodes would help {jobs['more_nodes_would_help']}{never}"
    )
    pool_lines(told["pools"], out)
    out.print(f"price    ${told['price_hour']:.2f} an hour for the machines there are")
    purse_lines(told["budgets"], out)
    for orphan in told["orphans"]:
        out.print(f"orphan   {orphan_line(orphan)}")
    for sentence in told["unreadable"]:
        out.print(sentence)
    if jobs["never"]:
        out.print(f"Next: cm-scale explain job {next(iter(jobs['never']))}")


def pool_lines(pools: Sequence[Mapping[str, Any]], out: Console, more: Sequence[str] = ()) -> None:
    """A table of pools, with these further words of each."""
    headings = {"pool": "name", "site": "site", **{word: word for word in more}}
    headings |= {"up": "up", "starting": "starting", "stopping": "stopping"}
    if any(pool["stopped"] for pool in pools):
        headings["stopped"] = "stopped"
    headings |= {"most": "most", "$/h each": "price_hour", "price from": "price_from", "closed": "closed"}
    rows = [dict(pool) | {"price_from": priced_by(pool["price_from"], pool["price_age_s"])} for pool in pools]
    words = {"pool", "site", "price from", "closed", *more}
    columns = [
        Column(heading, [_cell(row[key]) for row in rows], right=heading not in words)
        for heading, key in headings.items()
    ]
    print_table(columns, out, droppable=("site", "price from", *more, "$/h each"))


def orphan_json(view: Snapshot, orphan: Orphan, against: str) -> dict[str, Any]:
    return {
        "id": orphan.id,
        "what": orphan.what,
        "site": orphan.site,
        "node": orphan.node,
        "why": orphan.why,
        "age_s": max(view.now - orphan.since, 0.0),
        "against": against,
    }


def orphan_line(told: Mapping[str, Any]) -> str:
    """What nothing explains, since when, and what keeps it from being deleted."""
    then = f"not deleted now: {told['against']}" if told["against"] else "deleted next"
    return f"{told['what']} {told['id']} at {told['site']}: {told['why']}; found {_span(told['age_s'])} ago; {then}"


def purse_json(purse: Purse) -> dict[str, Any]:
    budget = purse.budget
    return {
        "name": budget.name,
        "title": f"{title(purse)} ({budget.text})",
        "who": purse.who,
        "per": budget.per.value,
        "currency": budget.currency,
        "limit": dollars(budget.limit),
        "spent": round(dollars(purse.spent), 6),
        "committed": round(dollars(purse.committed), 6),
        "at_limit": budget.at_limit.value,
        "used_up": purse.used_up,
        "opens": purse.until if purse.used_up else None,
        "why": purse.why,
    }


def purse_lines(purses: Iterable[Mapping[str, Any]], out: Console) -> None:
    """What has become of each budget."""
    for told in purses:
        spent, committed = (money(told[key], told["currency"]) for key in ("spent", "committed"))
        rest = told["why"].partition(" is used up: ")[2] if told["used_up"] else f"{committed} more with what is up"
        out.print(f"{told['title']}: {spent} spent; {'used up: ' if told['used_up'] else ''}{rest}")


def money(amount: float, currency: str) -> str:
    """To the cent."""
    return f"${amount:.2f}" if currency == "USD" else f"{amount:.2f} {currency}"


def _daemon(told: Mapping[str, Any]) -> str:
    leads = f"{told['leader']} leads since {date(told['leader_since'])}" if told["leader"] else ""
    if told["standby"]:
        return f"running as process {told['pid']}, standby; {leads or 'nobody leads'}"
    if told["running"]:
        last = f", last look {_span(told['age_s'])} ago" if told["age_s"] is not None else ""
        since = f", leads since {date(told['leader_since'])}" if leads else ""
        return f"running as process {told['pid']}, mode {told['mode']}{since}{last}"
    if leads:
        return f"not running here; {leads}"
    return f"not running (mode {told['mode']}); start it with: cm-scale run"


def _override_lines(overrides: Iterable[Hold], now: float) -> list[str]:
    """What persons have said, but for a pause, which has its own line."""
    words = {Kind.KEEP: "kept", Kind.DRAIN_SITE: "drained"}
    return [
        f"{words[hold.kind]:<9}{names} for another {_span(hold.until - now)} by {hold.by}: {hold.why}"
        for hold, names in together(overrides)
        if hold.kind in words
    ]


def hold_lines(holds: Sequence[tuple[Hold, str, str]], out: Console) -> None:
    """A table of what stands: each with its names and until when."""
    columns = [
        Column("what", [hold.kind.value for hold, _, _ in holds]),
        Column("name", [names for _, names, _ in holds]),
        Column("until", [until for _, _, until in holds]),
        Column("by", [hold.by for hold, _, _ in holds]),
        Column("why", [hold.why for hold, _, _ in holds]),
    ]
    print_table(columns, out, droppable=())


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


def node_lines(rows: Sequence[Mapping[str, Any]], now: float, out: Console) -> None:
    columns = [
        Column("node", [row["name"] for row in rows]),
        Column("pool", [row["pool"] or "-" for row in rows]),
        Column("site", [row["site"] for row in rows]),
        Column("power", [row["power"] for row in rows]),
        # That a node of a pool is CLOUD goes without saying.
        Column("slurm", ["+".join(word for word in row["slurm"] if word != "CLOUD").lower() for row in rows]),
        Column("machine", [row["machine"] or "" for row in rows]),
        Column("age", [_span(now - row["up_since"]) if row["up_since"] else "" for row in rows], right=True),
        Column("idle", [_span(row["idle_s"]) if row["idle_s"] is not None else "" for row in rows], right=True),
        Column("jobs", [",".join(row["jobs"]) for row in rows]),
        Column("trouble", [row["sick"] for row in rows]),
    ]
    print_table(columns, out, droppable=("site", "age", "slurm", "pool", "machine"))


_WAYS = {"commands": "Slurm's commands", "pyslurm": "PySlurm"}


def check_lines(found: Mapping[str, Any], out: Console) -> None:
    for key in ("config", "cluster", "mode", "slurm"):
        if key in found:
            out.print(f"{key:<9}{found[key]}")
    if "backend" in found:
        out.print(f"read by  {_WAYS[found['backend'].name]}: {found['backend'].why}")
    if "policies" in found:
        out.print(f"policies {', '.join(found['policies'])}")
    for pool in found.get("pools", ()):
        nodes = number(pool["nodes"], "node")
        source = priced_by(pool["price_from"], pool["price_age_s"])
        price = f"${pool['price_hour']:g} an hour each{f' ({source})' if source else ''}"
        out.print(
            f"pool     {pool['name']}: {nodes} at {pool['site']}, {price if pool['price_from'] else 'price unknown'}"
        )
    for note in found.get("notes", ()):
        out.print(f"note     {note}")


# --- tables ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    heading: str
    cells: Sequence[str]
    right: bool = False

    @property
    def width(self) -> int:
        """What it takes; a sentence wraps rather than take other columns' room."""
        return min(max(map(len, (self.heading, *self.cells))), LONGEST_WORD)


GAP = 2
LONGEST_WORD = 30


def print_table(columns: Iterable[Column], out: Console, droppable: Sequence[str]) -> None:
    """Columns without content are left out, then as many of the droppable ones as must be; what is left wraps."""
    shown = [column for column in columns if any(column.cells)]
    left_out: list[str] = []
    for heading in droppable:
        if sum(column.width + GAP for column in shown) - GAP <= out.width:
            break
        if heading in {column.heading for column in shown}:
            shown = [column for column in shown if column.heading != heading]
            left_out.append(heading)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), collapse_padding=True)
    for column in shown:
        table.add_column(column.heading, justify="right" if column.right else "left", overflow="fold")
    for cells in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*cells)
    with out.capture() as drawn:
        out.print(table, soft_wrap=False)
    for line in drawn.get().splitlines():
        click.echo(line.rstrip())
    if left_out:
        out.print(f"Left out at this width: {', '.join(left_out)}; --json has all.")


def _cell(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
