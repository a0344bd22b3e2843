"""With which tags is a machine started, so that the cloud's own bill tells for whom?

All machines of a launch share their tags, so only what all its jobs have in common is said. A machine that later serves
others, or is powered on again, keeps the tags of its launch: what each job has cost is told by `cm-scale cost`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cmscale.model import OUR_MARK, Job, JobId, Site, Snapshot

LONGEST = 256
"""What a tag of a cloud holds."""


def cost_tags(view: Snapshot, site: Site, served: Iterable[JobId | None]) -> Mapping[str, str]:
    """The tags of machines that are started together for these jobs; None stands for a machine that is for nobody."""
    if not site.cost_tags:
        return {}
    known = {job.id: job for job in view.jobs}
    jobs = [known.get(name) if name else None for name in served]
    said = {word: {_said(job, word) for job in jobs} for word in sorted(site.cost_tags)}
    agreed = {word: values.pop() for word, values in said.items() if len(values) == 1}
    return {f"{OUR_MARK}{word}": _text(value) for word, value in agreed.items() if value}


def _said(job: Job | None, word: str) -> str:
    if job is None:
        return ""
    return {"account": job.account, "user": job.user, "job": job.array or job.id}[word]


def _text(value: str) -> str:
    """What EC2 takes as the value of a tag; a job's id may have brackets."""
    return "".join(sign if sign.isalnum() or sign in " +-=._:/@" else "_" for sign in value)[:LONGEST]
