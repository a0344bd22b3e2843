"""Machines of Amazon EC2, and what can be asked about them."""

from cmscale.adapters.aws.buckets import Buckets
from cmscale.adapters.aws.families import quota_family
from cmscale.adapters.aws.market import AwsMarket
from cmscale.adapters.aws.pool import AwsPool
from cmscale.adapters.aws.site import AwsSite

__all__ = ["AwsMarket", "AwsPool", "AwsSite", "Buckets", "quota_family"]
