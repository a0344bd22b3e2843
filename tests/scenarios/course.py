"""How does a story go, and where does it go otherwise than it is told?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cmscale.shell import wiring
from cmscale.shell.schema import Mode
from tests.scenarios.stage import Stage
from tests.scenarios.story import Deed, Expected, Story, Submission
from tests.shell.cluster import Cluster


def play(story: Story, folder: Path) -> Iterator[str]:
    """What is not as the story tells it, or must never be, a sentence each."""
    stage = _set(story, folder)
    course = Course(story, list(story.jobs), list(story.deeds), list(story.expected))
    while stage.at_s <= story.ends_s and not course.is_over(stage):
        course.happen(stage)
        yield from course.forbidden(stage, stage.tick())
        yield from course.unfulfilled(stage)
        stage.pass_time(story.tick_s)
    for expected in course.waiting:
        yield f"the story ended before {expected.claim.text}"
    left = {machine.node for machine in stage.machines}
    if left != story.kept:
        yield f"at the end these nodes have machines: {_names(left)}; expected: {_names(story.kept)}"


def until(at_s: float, story: Story, folder: Path) -> Stage:
    """The stage at that time of the story, right after a tick."""
    stage = _set(story, folder)
    course = Course(story, list(story.jobs), list(story.deeds), [])
    while True:
        course.happen(stage)
        stage.tick()
        if stage.at_s >= at_s:
            return stage
        stage.pass_time(story.tick_s)


def _set(story: Story, folder: Path) -> Stage:
    config = story.config
    cluster = Cluster(
        folder / "journal.db",
        pools=list(wiring.pools(config).values()),
        policies=wiring.loaded_policies(config),
        limits=config.limits,
        sites={name: each.site for name, each in config.sites.items()},
        queues=config.queues,
        may_act=config.mode is Mode.ACT,
    )
    if story.home:
        cluster.slurm.add_home(story.home.nodes, story.home.shape, ("batch",))
    for cloud in cluster.clouds.values():
        cloud.boot_s, cloud.ending_s, cloud.lag_s = story.world["boot"], story.world["ending"], story.world["lag"]
    return Stage.of(cluster)


@dataclass(slots=True)
class Course:
    """What is still to come of a story."""

    story: Story
    jobs: list[Submission]
    deeds: list[Deed]
    waiting: list[Expected]
    told: set[str] = field(default_factory=set)

    def is_over(self, stage: Stage) -> bool:
        """Nothing is there and nothing is to come, so nothing more will happen."""
        return stage.cluster.finished and not (self.jobs or self.deeds or self.waiting)

    def happen(self, stage: Stage) -> None:
        """Submit the jobs whose time has come, and do the deeds."""
        while self.jobs and self.jobs[0].at_s <= stage.at_s:
            _submit(stage, self.jobs.pop(0))
        while self.deeds and self.deeds[0].at_s <= stage.at_s:
            self.deeds.pop(0).what(stage)

    def forbidden(self, stage: Stage, always: Iterable[str]) -> Iterator[str]:
        """What must never be and is, each told once; `always` is what no story may have."""
        verdicts = [(claim.text, claim(stage)) for claim in self.story.never]
        for each in [*always, *(f"{text}: {verdict.instead}" for text, verdict in verdicts if verdict.holds)]:
            what = each.partition(":")[0]
            if what not in self.told:
                self.told.add(what)
                yield f"at {stage.time}: never: {each}"

    def unfulfilled(self, stage: Stage) -> Iterator[str]:
        """What is expected now and is not so; what comes later goes on waiting."""
        still: list[Expected] = []
        for expected in self.waiting:
            if stage.at_s < expected.from_s:
                still.append(expected)
                continue
            holds, instead = expected.claim(stage)
            last = stage.at_s >= expected.to_s
            if not holds and (last or not expected.once):
                what = "not by now" if expected.once else "not so"
                yield f"at {stage.time}: {what}: {expected.claim.text}: {instead}"
            elif not last and not (holds and expected.once):
                still.append(expected)
        self.waiting = still


def _submit(stage: Stage, job: Submission) -> None:
    stage.cluster.slurm.submit(
        job.number,
        job.ask_at(stage.began),
        job.run_s,
        job.count,
        begin=None if job.begin_s is None else stage.began + job.begin_s,
        **job.more,
    )


def _names(nodes: Iterable[str]) -> str:
    return ", ".join(sorted(nodes)) or "none"
