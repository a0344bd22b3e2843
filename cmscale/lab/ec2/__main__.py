"""`python -m cmscale.lab.ec2`: the double by itself, as the lab and tests start it."""

from cmscale.lab.ec2.server import main

if __name__ == "__main__":
    main()
