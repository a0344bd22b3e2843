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
    """Ours if it names instances, or what they have; tags of all else are moto's."""
    if not _names_ours(scene):
        return None
    tags = {tag["Key"]: tag.get("Value", "") for tag in scene.asked.get("Tags", ())}
    if any(len(key) > 128 or len(value) > 256 for key, value in tags.items()):
        raise Refused("InvalidParameterValue", "Tag keys are at most 128 and tag values at most 256 characters long.")
    if any(key.startswith("aws:") for key in tags):
        raise Refused("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
    scene.stop_here_if_dry()
    tagged = scene.region.tag(scene.asked["Resources"], tags, scene.now)
    return scene.told({}, tagged)


def delete_tags(scene: Scene) -> Answer | None:
    if not _names_ours(scene):
        return None
    scene.stop_here_if_dry()
    tags = {tag["Key"]: tag.get("Value") for tag in scene.asked.get("Tags", ())}
    return scene.told({}, scene.region.untag(scene.asked["Resources"], tags, scene.now))


def _names_ours(scene: Scene) -> bool:
    """Does a call name instances, or what they have? Not both these and others: moto knows nothing of ours."""
    ids = scene.asked.get("Resources", [])
    ours = [each for each in ids if each.startswith("i-") or scene.region.has_part(each, scene.now)]
    if ours and len(ours) < len(ids):
        raise Refused("UnsupportedOperation", "The lab tags instances and what they have by calls of their own.")
    return bool(ours)
