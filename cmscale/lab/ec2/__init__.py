"""What does Amazon EC2 answer, with real semantics, to a program that may run no real instance?

`cm-scale lab ec2`, or `python -m cmscale.lab.ec2 --dir D`, serves the EC2 API of any number of regions on 127.0.0.1.
Instances, fleets, reservations and prices are ours; everything else (networks, images, types, security groups, STS,
IAM, SQS, EventBridge...) is moto. When it is ready it writes D/ec2.json:

    {"endpoint": "http://127.0.0.1:PORT", "regions": {"us-east-1": {"image", "vpc", "subnet", "subnets": {zone: id}}}}

Private addresses lie in 127.64.0.0/10, so that a slurmd on this machine can be reached at its instance's address. Calls
are answered one at a time (moto is not safe for threads); delays of faults are waited out of turn. Each call becomes a
line of D/calls.jsonl: at, took_s, action, region, by (the access key), params, instances, error, status, fault.

Beside the API the same server has a side for tests and for the lab itself, see `cmscale.lab.backstage`.

The console output of an instance is what D/log/console-ID.out holds, which the lab's booter writes.

Requests are read and answers are written by the SDK's own model of EC2 (`cmscale.lab.wire`), so that an answer of ours
holds nothing that boto3 does not know. Where things are:

    server     one request: faults, who answers it, the journal; and serving
    calls      a request and an answer as values
    actions    which actions of EC2 are ours, and who answers each
    launching  RunInstances, and what fleets and launch templates have in common with it
    fleets     CreateFleet
    looking    what is shown of instances; filters and pages
    changing   ends, stops, starts and tags
    reserving  placement groups, capacity reservations
    attached   volumes and network interfaces
    pricing    offerings and the history of spot prices
    services   which services beside EC2 are ours and not moto's
"""

ACCESS_KEY = "AKIALAB0000000000000"
SECRET_KEY = "lab-secret-key"  # noqa: S105 - opens nothing but this double
DEFAULT_REGIONS = ("us-east-1", "us-west-2")
