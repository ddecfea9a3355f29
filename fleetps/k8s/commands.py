"""`fleetps k8s`."""

from pathlib import Path

import click

from fleetps.k8s.render import Wanted, overridden, render, to_yaml


@click.group()
def k8s() -> None:
    """Run a job on Kubernetes."""


@k8s.command("render")
@click.option(
    "--config", metavar="FILE", required=True, help="The job file, such as conf/quickstart.yaml."
)
@click.option("--image", metavar="NAME", help="The image, best with its digest.")
@click.option("--servers", type=click.IntRange(1, 1024), help="Else as in the job file.")
@click.option("--workers", type=click.IntRange(1, 10_000), help="Else as in the job file.")
@click.option("--namespace", help="Where all of it goes.  [default: fleetps]")
@click.option("--name", help="Of the job's objects, for several in a namespace. [default: fleetps]")
def render_command(
    config: str,
    image: str | None,
    servers: int | None,
    workers: int | None,
    namespace: str | None,
    name: str | None,
) -> None:
    """Write the manifests of a job: k8s/base with this job file, without kustomize.

    Nothing is sent to a cluster: fleetps k8s render ... | kubectl apply -f -
    """
    wanted = Wanted(Path(config), image, servers, workers, namespace, name)
    objects = render(wanted)
    for note in overridden(objects, wanted.config):
        click.echo(note, err=True)
    click.echo(to_yaml(objects), nl=False)
