"""How does the demo look? A live timeline of jobs and nodes while it runs, then one sentence for each decision."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cmscale.cli import render
from cmscale.lab.lab import Lab
from cmscale.lab.story import DONE, SUBMISSIONS, Scene, Story, Task

NODE_MARKS = {
    "off": ("·", "bright_black"),
    "starting": ("░", "yellow"),
    "joined": ("▒", "cyan"),
    "busy": ("█", "green"),
    "ending": ("╌", "magenta"),
}
JOB_MARKS = {"waits": ("░", "yellow"), "runs": ("█", "green"), "done": ("·", "bright_black")}
WIDTH = 60
SAMPLE_S = 0.5


class Timeline:
    """A strip for each job and each node, one mark for each half second."""

    def __init__(self) -> None:
        self.jobs: dict[str, list[str]] = {kind: [] for kind in SUBMISSIONS}
        self.nodes: dict[str, list[str]] = {}
        self.scene: Scene | None = None
        self.next_s = 0.0

    def add(self, scene: Scene) -> None:
        self.scene = scene
        while self.next_s <= scene.after_s:
            self.next_s += SAMPLE_S
            for kind, strip in self.jobs.items():
                strip.append(_job_word([task for task in scene.tasks if task.kind == kind]))
            for node, word in scene.nodes.items():
                self.nodes.setdefault(node, ["off"] * (len(self.jobs["at home"]) - 1)).append(word)

    def drawing(self) -> Group:
        if self.scene is None:
            return Group(Text("Nothing to see yet."))
        table = Table(box=None, pad_edge=False, show_header=False)
        for kind, strip in self.jobs.items():
            tasks = [task for task in self.scene.tasks if task.kind == kind]
            table.add_row(kind, _strip(strip, JOB_MARKS), _counts(tasks))
        table.add_row("", "", "")
        for node, strip in self.nodes.items():
            if any(word != "off" for word in strip):
                table.add_row(node, _strip(strip, NODE_MARKS), strip[-1])
        legend = Text("jobs  ")
        for word, (mark, colour) in JOB_MARKS.items():
            legend.append(f"{mark} {word}  ", colour)
        legend.append("   nodes  ")
        for word, (mark, colour) in NODE_MARKS.items():
            legend.append(f"{mark} {word}  ", colour)
        heading = Text(f"{self.scene.after_s:5.1f} s   {self.scene.instances} machines exist", "bold")
        return Group(heading, table, legend)


def _job_word(tasks: list[Task]) -> str:
    if any(task.state not in DONE and not task.waits for task in tasks):
        return "runs"
    return "waits" if any(task.waits for task in tasks) or not tasks else "done"


def _counts(tasks: list[Task]) -> str:
    states = Counter("waiting" if task.waits else "done" if task.state in DONE else "running" for task in tasks)
    if len(tasks) == 1:
        return next(iter(states))
    return ", ".join(f"{count} {word}" for word, count in states.items())


def _strip(words: list[str], marks: dict[str, tuple[str, str]]) -> Text:
    text = Text()
    step = max(1, -(-len(words) // WIDTH))
    for word in words[::step]:
        mark, colour = marks[word]
        text.append(mark, colour)
    return text


def demo(directory: Path | None, limit_s: float, *, in_json: bool) -> bool:
    """Run the demo; True if all went as promised. Everything it started is ended, however it ends."""
    out = render.console()
    with _folder(directory) as folder:
        if not in_json:
            out.print(f"Bringing up a cluster in {folder}: Slurm, two nodes at home, an EC2 API ...")
        with Lab(folder) as lab:
            story = Story(lab, limit_s)
            try:
                story.start_daemon()
                story.submit()
                _watch(story, out, in_json=in_json)
            finally:
                story.stop_daemon()
            result = story.result()
            decisions = story.decisions
    if in_json:
        click.echo(render.as_json(result))
    else:
        _tell(result, decisions, out)
    return bool(result["ok"])


@contextmanager
def _folder(directory: Path | None) -> Iterator[Path]:
    if directory:
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="cm-scale-demo-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)  # munge's socket must be within everybody's reach
        yield Path(name)


def _watch(story: Story, out: Console, *, in_json: bool) -> None:
    timeline = Timeline()
    if in_json or not out.is_terminal:
        last = ""
        for scene in story.scenes():
            timeline.add(scene)
            line = _line(scene)
            if not in_json and line != last:
                out.print(f"{scene.after_s:5.1f} s  {line}")
                last = line
        if not in_json:
            out.print(timeline.drawing())
        return
    with Live(timeline.drawing(), console=out, refresh_per_second=4) as live:
        for scene in story.scenes():
            timeline.add(scene)
            live.update(timeline.drawing())


def _line(scene: Scene) -> str:
    tasks = f"jobs: {_counts(list(scene.tasks))}"
    nodes = Counter(word for word in scene.nodes.values() if word != "off")
    return f"{tasks}; nodes: {', '.join(f'{count} {word}' for word, count in sorted(nodes.items()))}"


def _tell(result: dict[str, Any], decisions: list[str], out: Console) -> None:
    out.print("\nWhat was decided, and why", style="bold")
    for line in decisions:
        out.print(line)
    out.print()
    for job, why in result["never_fit"].items():
        out.print(f"Job {job} was told in its comment: {why}")
    reaction = f"{result['reaction_s']:.1f} s" if result["reaction_s"] is not None else "never"
    out.print(
        f"{result['instances_created']} machines were made by {result['launch_calls']} calls, "
        f"{result['instances_left']} are left; from sbatch to the launch call: {reaction} (median)."
    )
    if result["ok"]:
        out.print("ok", style="bold green")
        out.print("Next: read etc/cmscale.toml, write your own, then: cm-scale check --config YOURS")
    else:
        out.print("not ok: something above did not end as it should", style="bold red")
