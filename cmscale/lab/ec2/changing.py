"""What becomes of instances that are there: ended, stopped, started, tagged?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cmscale.lab.ec2.calls import Answer, Scene
from cmscale.lab.instance import Refused
from cmscale.lab.instances import Change


def terminate_instances(scene: Scene) -> Answer:
    return _changed(scene, scene.region.terminate, "TerminatingInstances")


def stop_instances(scene: Scene) -> Answer:
    return _changed(scene, scene.region.stop, "StoppingInstances")


def start_instances(scene: Scene) -> Answer:
    return _changed(scene, scene.region.start, "StartingInstances")


def _changed(scene: Scene, send: Callable[[Sequence[str], float], list[Change]], name: str) -> Answer:
    ids = scene.asked.get("InstanceIds")
    if not ids:
        raise Refused("MissingParameter", "The request must contain the parameter InstanceId")
    list(scene.region.described(ids, scene.now))  # unknown ids come before DryRun
    scene.stop_here_if_dry()
    changes = send(ids, scene.now)
    items = [
        {"InstanceId": each.id, "CurrentState": after.words, "PreviousState": before.words}
        for each, before, after in changes
    ]
    return scene.told({name: items}, [each for each, _, _ in changes])


def create_tags(scene: Scene) -> Answer | None:
    """Ours if it names instances alone; tags of all else are moto's."""
    ids = scene.asked.get("Resources", [])
    if not all(each.startswith("i-") for each in ids):
        return None
    tags = {tag["Key"]: tag.get("Value", "") for tag in scene.asked.get("Tags", ())}
    if any(len(key) > 128 or len(value) > 256 for key, value in tags.items()):
        raise Refused("InvalidParameterValue", "Tag keys are at most 128 and tag values at most 256 characters long.")
    scene.stop_here_if_dry()
    scene.region.tag(ids, tags, scene.now)
    return scene.told({}, scene.region.described(ids, scene.now))


def delete_tags(scene: Scene) -> Answer | None:
    ids = scene.asked.get("Resources", [])
    if not all(each.startswith("i-") for each in ids):
        return None
    scene.stop_here_if_dry()
    scene.region.untag(ids, {tag["Key"]: tag.get("Value") for tag in scene.asked.get("Tags", ())}, scene.now)
    return scene.told({}, scene.region.described(ids, scene.now))
