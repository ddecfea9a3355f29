"""What is wrong with a set of Kubernetes objects, as far as they themselves show it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import check_environment
import check_network
import check_pods
import check_references
from manifests import Manifests, Object

CHECKS: Sequence[Callable[[Manifests], Iterator[str]]] = (
    check_references.names,
    check_references.namespaces,
    check_references.labels,
    check_references.selectors,
    check_references.services,
    check_references.stateful_sets,
    check_references.disruption,
    check_references.accounts,
    check_references.volumes,
    check_pods.resources,
    check_pods.ports,
    check_pods.probes,
    check_pods.images,
    check_pods.security,
    check_pods.secrets,
    check_pods.grace,
    check_pods.jobs,
    check_environment.variables,
    check_environment.roles,
    check_environment.job_files,
    check_network.policies,
    check_network.flows,
)


def findings(objects: Sequence[Object], external: Collection[str] = ()) -> list[str]:
    """Sentences; none: nothing was found.

    `external`: what the objects refer to and somebody else makes, such as
    "PriorityClass/training". The Secret with the token needs not be named.
    """
    manifests = Manifests(list(objects), external)
    return [sentence for check in CHECKS for sentence in check(manifests)]
