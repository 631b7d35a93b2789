"""The command `berth-sdk`."""

from __future__ import annotations

import sys
from argparse import Action, ArgumentError, ArgumentParser
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from berth_sdk.cli import completion, conformance, serve_extender
from berth_sdk.runtime.standard_streams import prepare_streams, result_written
from berth_sdk.wire.grpc_core import poll_by_the_caller, write_errors_alone
from berth_sdk.wire.message_limit import FLAG, SERVER_BYTES

LANGUAGES: Final = ("python", "go", "typescript", "rust", "java")
"""The languages of `new`."""
INTERRUPTED: Final = 130
"""Exit code after Ctrl-C: 128 plus the number of SIGINT, as in shells."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    prepare_streams()
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        print("berth-sdk: interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(words: Sequence[str]) -> int:
    with result_written("berth-sdk"):
        if words[:1] == [completion.ASK]:
            return completion.complete(build_parser(), words[1:])
        options = build_parser().parse_args(words)
        if options.command == "completion":
            return completion.completion(options)
        if options.command == "new":
            from berth_sdk.cli.new import new

            return new(options)
    poll_by_the_caller()
    write_errors_alone()
    # Imported late: a help text needs no gRPC, and gRPC's settings must be made before gRPC is imported.
    if options.command == "serve":
        if options.reload:
            from berth_sdk.cli.reloading import serve_reloading

            return serve_reloading(words, options.names)
        from berth_sdk.cli.serve import serve

        return serve(options)
    if options.command == "check":
        from berth_sdk.cli.check import check

        with result_written("berth-sdk"):
            return check(options)
    from berth_sdk.cli import reflect

    with result_written("berth-sdk"):
        if options.command == "conformance":
            return conformance.conformance(options)
        return reflect.reflect(options)


def build_parser() -> ArgumentParser:
    """Return the parser of all commands and their options. The reference pages are made from it."""
    parser = _Parser(prog="berth-sdk", description="Write and serve scheduling plugins, and inspect servers.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve plugins over gRPC")
    serve.add_argument(
        "names",
        nargs="+",
        metavar="NAME",
        help="an installed plugin (entry point of berth.plugins), or module:Class",
    )
    serve.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="unix:PATH or HOST:PORT (without TLS, loopback only); default: $BERTH_PLUGIN_ENDPOINT",
    )
    _add_tls(serve)
    serve.add_argument(
        "--credential-file",
        metavar="PATH",
        help="file with the secret that hosts must send; default: the secret of the parent host, if any",
    )
    serve.add_argument(
        FLAG,
        type=int,
        metavar="BYTES",
        help="the largest message that this server receives; the smaller one of this limit and the host's"
        f" maxMessageBytes holds for both directions (default: {SERVER_BYTES})",
    )
    serve.add_argument(
        "--grace",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="time for open calls to end and for the plugins' close() when stopping (default: 5)",
    )
    serve.add_argument(
        "--log-level", default="info", choices=("debug", "info", "warning", "error"), help="default: info"
    )
    serve.add_argument(
        "--reload",
        action="store_true",
        help="start again whenever a file of the plugins changes, while you write",
    )
    serve_extender.add_options(serve)
    _add_new(commands)
    check = commands.add_parser("check", help="say what a host would think of a plugin class")
    check.add_argument(
        "names",
        nargs="+",
        metavar="NAME",
        help="an installed plugin (entry point of berth.plugins), or module:Class",
    )
    check.add_argument(
        "--args",
        metavar="JSON",
        default="{}",
        help="the plugin's arguments: a JSON object, or a file with one (default: none)",
    )
    reflect = commands.add_parser("reflect", help="list the services and methods of a server")
    reflect.add_argument("endpoint", metavar="ENDPOINT", help="unix:PATH or HOST:PORT")
    _add_client_tls(reflect)
    kit = commands.add_parser(
        "conformance", help="play the host against a server, and name what breaks the contract"
    )
    conformance.add_options(kit)
    _add_client_tls(kit)
    shells = commands.add_parser("completion", help="print a script that completes this command in a shell")
    shells.add_argument("shell", metavar="SHELL", choices=completion.SHELLS, help="bash, zsh or fish")
    return parser


class _Version(Action):
    """The option `--version`. It reads the version only when the option is given, which keeps every start
    short.
    """

    def __call__(self, parser: ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"berth-sdk {version('berth-sdk')}")
        parser.exit()


class _Parser(ArgumentParser):
    """Names the nearest word where a command, an option or a choice is misspelt."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the words. Ends with an error for an option that the command lacks."""
        found, unknown = super().parse_known_args(args, namespace)
        for word in unknown:
            if word.startswith("--"):
                from difflib import get_close_matches

                name = word.partition("=")[0]
                options = [one for action in self._actions for one in action.option_strings]
                near = get_close_matches(name, [one for one in options if one.startswith("--")], n=1)
                self.error(f"the option {name} is unknown{f': did you mean {near[0]}?' if near else ''}")
        return found, unknown

    def _check_value(self, action: Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            from difflib import get_close_matches

            near = get_close_matches(str(value), [str(one) for one in action.choices], n=1)
            hint = (
                f": did you mean {near[0]}?"
                if near
                else f": choose from {', '.join(map(str, action.choices))}"
            )
            raise ArgumentError(action, f"{value!r} is unknown{hint}")


def _add_new(commands: Any) -> None:
    new = commands.add_parser(
        "new", help="write the folder of a new plugin, with test, configuration and image"
    )
    # Not NAME, for which completion offers installed plugins.
    new.add_argument("name", metavar="PLUGIN", help="the plugin's name in lower case, as rack-aware")
    new.add_argument(
        "--points",
        metavar="LIST",
        default="filter,score",
        help="extension points as in the configuration, separated by commas (default: filter,score)",
    )
    new.add_argument("--language", choices=LANGUAGES, default="python", help="default: python")
    new.add_argument(
        "--folder", metavar="PATH", help="where to write it (default: a folder of the plugin's name)"
    )


def _add_tls(serve: ArgumentParser) -> None:
    """Add the TLS options of a server. The certificate, the key and the client CA go together."""
    serve.add_argument(
        "--tls-cert", metavar="PATH", help="the plugin's certificate, PEM; read again when it changes"
    )
    serve.add_argument("--tls-key", metavar="PATH", help="the key of --tls-cert, PEM, not encrypted")
    serve.add_argument(
        "--tls-client-ca", metavar="PATH", help="the authority that signed the hosts' certificates, PEM"
    )
    serve.add_argument(
        "--tls-client-name",
        metavar="NAME",
        action="append",
        help="a name in the certificate of a host that may attach; may be repeated",
    )


def _add_client_tls(reflect: ArgumentParser) -> None:
    """Add the TLS options of a client. All but the server's name go together."""
    reflect.add_argument(
        "--tls-ca", metavar="PATH", help="the authority that signed the server's certificate, PEM"
    )
    reflect.add_argument("--tls-cert", metavar="PATH", help="the client's certificate, PEM")
    reflect.add_argument("--tls-key", metavar="PATH", help="the key of --tls-cert, PEM, not encrypted")
    reflect.add_argument(
        "--tls-server-name", metavar="NAME", help="the name in the server's certificate (default: the host)"
    )


if __name__ == "__main__":
    sys.exit(main())
