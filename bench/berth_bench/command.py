"""`berth bench`: the commands and their common options.

The command reads and checks the input. Each workload then runs in a process of its own, one after the other.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from berth_host import log
from berth_host.cli import plugin_output, standard_input
from berth_host.cli.commands import Commands, own_plugins
from berth_host.cli.input_errors import fail, reported
from berth_host.cli.options import PATH, emulated_version_option, no_convert_option, verbose_option
from berth_host.cli.output import output_option
from berth_host.cli.rendering.serialized import STRUCTURED, streamed
from berth_sim.commands.strictness import conclude, strict_option

from berth_bench import openb, own
from berth_bench.attach.command import attach
from berth_bench.children import run_in_child
from berth_bench.faults.command import faults
from berth_bench.figures.command import figures
from berth_bench.hostile.command import hostile
from berth_bench.latency.command import latency
from berth_bench.life.command import life
from berth_bench.rendering.bench import notes_texts, plugins_text, results_text
from berth_bench.restart.command import restart
from berth_bench.result import Result
from berth_bench.running import NotAttachedError, Settings, WorkloadError, loaded, resized
from berth_bench.scheduler_perf import upstream
from berth_bench.scheduler_perf.cases import read_workloads
from berth_bench.simulate.command import simulate
from berth_bench.small_pods import small_option
from berth_bench.soak.command import soak
from berth_bench.two_schedulers.command import two_schedulers
from berth_bench.ui.command import ui
from berth_bench.versus.command import versus
from berth_bench.workload import Workload

Command = TypeVar("Command", bound=Callable[..., Any])
FAILED: Final = 1

_OPTIONS: Final = (
    click.option(
        "--config",
        "configs",
        multiple=True,
        type=PATH,
        metavar="FILE",
        help="KubeSchedulerConfiguration, with or without berth's own; - for standard input."
        " Repeatable: a run with each.",
    ),
    no_convert_option,
    click.option(
        "--remote",
        "remote",
        multiple=True,
        metavar="PLUGIN[,PLUGIN]",
        help="Run plugins in processes of their own: names of enabled ones, or module:Class to add one.",
    ),
    click.option(
        "--nodes", type=click.IntRange(min=1), metavar="N", help="Number of nodes, instead of the workload's."
    ),
    click.option(
        "--limit",
        "limit_s",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="End a workload after this time; its figures are those until then.",
    ),
    click.option(
        "--seed",
        type=int,
        default=0,
        show_default=True,
        help="Seed for the choice between nodes with equal scores.",
    ),
    output_option("json prints a line, yaml a document per workload, and nothing else."),
    strict_option,
    verbose_option,
    click.option(
        "--no-kept-answers",
        is_flag=True,
        help="Call every plugin about every pod and node, to measure what kept answers save.",
    ),
    click.option("--costs", is_flag=True, help="Print on standard error what each plugin took per call."),
    click.option(
        "--dump-placements",
        "placements",
        metavar="FILE",
        help="Write pod,node lines of one workload, each followed by the pod's annotations.",
    ),
    click.option(
        "--profile", metavar="FILE", help="Write a profile (cProfile) of one workload's measured part."
    ),
)


def bench_options(command: Command) -> Command:
    """Add the options of all commands of `bench` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class _Bench(Commands):
    """The group of commands, which explains how to run a workload that was given in place of a command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, as click does. Raises UsageError, which for a workload says what to type."""
        if "/" in args[0] and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            ctx.fail(_named_alone(args))
        return super().resolve_command(ctx, args)


def _named_alone(args: list[str]) -> str:
    """Return the error message for `berth bench CASE/WORKLOAD`."""
    # Not at the top: see `versus`.
    from berth_bench.versus.workloads import WORKLOADS

    name, *more = args
    known = {
        "own": [workload.name for workload in read_workloads(own.FILE, ())],
        "versus": [workload.name for workload in WORKLOADS],
    }
    commands = [command for command, names in known.items() if name in names]
    if commands:
        return (
            f"{name} is a workload, run by {' or '.join(_typed(command, name, more) for command in commands)}"
        )
    near = get_close_matches(name, known["own"], n=1)
    cure = f"did you mean {_typed('own', near[0], more)}?" if near else "berth bench own --list names them"
    return f"there is no command and no workload {name}: {cure}"


def _typed(command: str, name: str, more: Sequence[str]) -> str:
    return f"`{shlex.join(['berth', 'bench', command, name, *more])}`"


@click.group(cls=_Bench, invoke_without_command=True)
@click.pass_context
def bench(context: click.Context) -> None:
    """Run workloads on the embedded cluster, in real time, and print how fast pods were scheduled.

    Without a command: `berth bench own`, all workloads that come with berth.
    """
    if context.invoked_subcommand is None:
        context.invoke(own_command)


bench.add_command(attach)
bench.add_command(faults)
bench.add_command(figures)
bench.add_command(hostile)
bench.add_command(latency)
bench.add_command(life)
bench.add_command(restart)
bench.add_command(simulate)
bench.add_command(soak)
bench.add_command(two_schedulers)
bench.add_command(ui)
bench.add_command(versus)


@bench.command("scheduler-perf")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option(
    "--workload",
    "names",
    multiple=True,
    metavar="CASE/WORKLOAD",
    help="Run this workload; CASE ends at the first slash. Repeatable. [default: all of the files]",
)
@click.option(
    "--labels",
    default="",
    metavar="LABEL,...",
    help="Run workloads with these labels; -LABEL: without the label.",
)
@click.option(
    "--data",
    metavar="DIR",
    type=Path,
    default=upstream.DATA,
    show_default=True,
    help="Folder of `make scheduler-perf-data`.",
)
@click.option(
    "--release",
    metavar="VERSION",
    default=upstream.VERSION,
    show_default=True,
    help="Release of Kubernetes whose files are meant, in the --data folder.",
)
@emulated_version_option
@bench_options
def scheduler_perf(
    files: tuple[str, ...], names: tuple[str, ...], labels: str, data: Path, release: str, **options: Any
) -> None:
    """Run workloads of each FILE, a performance-config.yaml of Kubernetes' scheduler_perf.

    FILE may also be the name of one of Kubernetes' own files (affinity, misc, ...) in the --data folder;
    without FILE all of them run. Paths in a file are relative to it.
    """
    with reported():
        paths = upstream.files(files, data, release)
        left_out: list[str] = []
        workloads = read_workloads(paths, names, labels, signatures=True, left_out=left_out)
    for sentence in left_out:
        click.echo(f"note: {sentence}", err=True)
    _run(
        workloads,
        options,
        lambda workload: ("scheduler-perf", workload.source, "--workload", workload.name),
    )


@bench.command("openb")
@click.option(
    "--data", metavar="DIR", required=True, type=Path, help="Folder with the trace's two CSV files."
)
@bench_options
def openb_command(data: Path, **options: Any) -> None:
    """Run the openb GPU cluster trace: its nodes, and its tasks in the order of the file."""
    with reported():
        workload = openb.workload_of(data, options["nodes"])
    _run([workload], options | {"nodes": None}, lambda _: ("openb", "--data", str(data)), options["nodes"])


def _own_names(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Return the workloads whose names begin with `begun`, for completion in a shell."""
    return [work.name for work in read_workloads(own.FILE, ()) if work.name.startswith(begun)]


@bench.command("own")
@click.argument("names", nargs=-1, metavar="[CASE/WORKLOAD]...", shell_complete=_own_names)
@click.option("--list", "lists", is_flag=True, help="Print the names, and run nothing.")
@small_option
@bench_options
def own_command(
    names: tuple[str, ...] = (), lists: bool = False, small: bool = False, **options: Any
) -> None:
    """Run workloads that come with berth: all of them, or the named ones."""
    with reported():
        workloads = read_workloads(own.FILE, names)
    if lists:
        click.echo("\n".join(workload.name for workload in workloads))
        return
    workloads = [replace(workload, as_kept=not small) for workload in workloads]
    _run(workloads, options, lambda workload: ("own", workload.name, *(("--small",) if small else ())))


def _run(
    workloads: Sequence[Workload],
    options: dict[str, Any],
    command_of: Callable[[Workload], tuple[str, ...]],
    shown_nodes: int | None = None,
) -> None:
    log.configure(log.EVERY_ATTEMPT if options.get("verbose") else "ERROR", for_people=True)
    settings = replace(_settings(options), standard_input=_standard_input(options))
    if options.get("nodes"):
        workloads = [resized(workload, options["nodes"]) for workload in workloads]
    configs: tuple[str, ...] = options.get("configs") or ("",)
    runs = [(workload, replace(settings, config=config)) for workload in workloads for config in configs]
    if len(runs) > 1:
        for option, value in (("--dump-placements", settings.placements), ("--profile", settings.profile)):
            if value:
                fail(
                    f"{option} is for one run, but there are {len(runs)}: name one workload and one --config"
                )
    # Plugins are imported here; their output is not part of the result.
    with reported(), plugin_output.on_standard_error():
        for workload, own_settings in runs:
            loaded(workload, own_settings)  # report a bad configuration before anything runs
    more = _more_arguments(options | {"nodes": options.get("nodes") or shown_nodes})
    results: list[Result] = []
    absent: list[str] = []
    for number, (workload, own_settings) in enumerate(runs, start=1):
        _say_progress(number, len(runs), workload.name)
        try:
            result = run_in_child(workload, own_settings)
        except WorkloadError as err:
            click.echo(f"berth bench: {err}", err=True)
            absent += [err.plugin] if isinstance(err, NotAttachedError) else []
            continue
        results.append(replace(result, config=own_settings.config) if len(configs) > 1 else result)
        if options.get("output") in STRUCTURED:
            config = ["--config", own_settings.config] if own_settings.config else []
            command = shlex.join(["berth", "bench", *command_of(workload), *config, *more])
            click.echo(streamed(result.as_json(command), options["output"]), nl=False)
            sys.stdout.flush()
    _report(results, options)
    failed_plugins = [*absent, *(text for result in results for text in result.failed_plugins)]
    could_run = len(results) + len(absent) == len(runs)
    if could_run:
        lapses = [lapse for result in results for lapse in result.lapses]
        conclude(lapses, list(dict.fromkeys(failed_plugins)), strict=options.get("strict"))
    if len(results) < len(runs):
        sys.exit(FAILED)


def _report(results: Sequence[Result], options: dict[str, Any]) -> None:
    if options.get("output") in STRUCTURED:
        for line in notes_texts(results):
            click.echo(line, err=True)
        for result in results:
            if result.gpu_share is not None:
                text = f"note ({result.title}): {100 * result.gpu_share:.2f} % of the GPUs are in use"
                click.echo(text, err=True)
    elif results:
        click.echo(results_text(results), nl=False)
    if options.get("costs"):
        for result in results:
            click.echo(plugins_text(result), nl=False, err=True)


def _settings(options: dict[str, Any]) -> Settings:
    remote = tuple(name.strip() for given in options.get("remote") or () for name in given.split(","))
    return Settings(
        convert_older=not options.get("no_convert"),
        remote=tuple(name for name in remote if name),
        seed=options.get("seed") or 0,
        profile=_absolute(options.get("profile")),
        placements=_absolute(options.get("placements")),
        verbose=bool(options.get("verbose")),
        keep_answers=not options.get("no_kept_answers"),
        limit_s=options.get("limit_s") or 0.0,
        emulated_version=options.get("emulated_version") or "",
        plugins=own_plugins(),
    )


def _standard_input(options: dict[str, Any]) -> str:
    """Read the configuration from standard input, once for all workloads; return "" if no option names it."""
    asked = tuple(options.get("configs") or ()).count(standard_input.SIGN)
    if asked > 1:
        fail("standard input can be read once, but --config - is given twice")
    try:
        return standard_input.read_text() if asked else ""
    except OSError as err:
        fail(f"{standard_input.NAME}: cannot be read: {err.strerror}")
    except UnicodeDecodeError as err:
        fail(f"{standard_input.NAME}: is not UTF-8 text (byte {err.start}): save it as UTF-8")


def _absolute(path: str | None) -> str:
    """Return the absolute path of a file to be written; check before the work that it can be written."""
    if not path:
        return ""
    try:
        where = Path(path).absolute()
        was_there = where.exists()
        where.open("ab").close()
    except OSError as err:
        fail(f"{path} cannot be written: {err.strerror}")
    if not was_there:
        where.unlink()
    return str(where)


def _more_arguments(options: dict[str, Any]) -> list[str]:
    """Return the options that affect the figures, as they were given."""
    arguments: list[str] = []
    for name in ("nodes", "seed"):
        if options.get(name):
            arguments += [f"--{name}", str(options[name])]
    if options.get("limit_s"):
        arguments += ["--limit", f"{options['limit_s']:g}"]
    if options.get("no_convert"):
        arguments.append("--no-convert")
    if options.get("emulated_version"):
        arguments += ["--emulated-version", options["emulated_version"]]
    for given in options.get("remote") or ():
        arguments += ["--remote", given]
    return arguments


def _say_progress(number: int, total: int, name: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"{name} ({number} of {total}) ...", err=True)
