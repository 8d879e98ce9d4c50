"""The command `voiceclaim serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.commands.shared import Jobs, Log, LogKey, Outsiders
from pipeline.errors import LibraryMissingError
from pipeline.terminal import complain, cores, say


def serve(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the speaker store; made if new.")],
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    tokens: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Lines `scope token`.", show_default="the variable VOICECLAIM_TOKENS"),
    ] = None,
    evaluation: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Results of `voiceclaim evaluate` for the page to show.")
    ] = None,
    log: Log = None,
    log_key: LogKey = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Settings for a store that is new: a file, or a name.")
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting of a new store.")
    ] = None,
    outsiders: Outsiders = None,
    aim: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Speech that the page asks to enroll.")] = 8.0,
    streams: Annotated[int, typer.Option(min=1, help="Streams at a time.")] = 128,
    stream_seconds: Annotated[float, typer.Option(min=1, help="Audio in one stream.")] = 300.0,
    file_seconds: Annotated[float, typer.Option(min=1, help="Audio in one uploaded file.")] = 600.0,
    body_mib: Annotated[int, typer.Option(min=1, help="MiB in one request.")] = 64,
    idle_seconds: Annotated[float, typer.Option(min=1, help="A stream ends after so long without audio.")] = 20.0,
    grace_seconds: Annotated[float, typer.Option(min=1, help="Most that an orderly end waits for.")] = 300.0,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate (PEM): serve HTTPS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Key of the certificate (PEM).")] = None,
    jobs: Jobs = None,
) -> None:
    """Serve enrollment and verification over HTTP and WebSockets, and a page to do both by speaking.

    Beyond this machine every caller needs a bearer token. Ends in order at SIGTERM or Ctrl-C: nobody is ever enrolled
    by half. docs/service.md has the protocol, tokens, limits and how to run it for good.

    \b
    Example: voiceclaim serve speakers.store
    Example: voiceclaim serve speakers.store --host 0.0.0.0 --tokens tokens.txt --tls-cert cert.pem --tls-key key.pem
    """
    try:
        import fastapi as _fastapi  # noqa: F401
        import uvicorn as _uvicorn  # noqa: F401
    except ImportError as error:
        raise LibraryMissingError(
            f"serve: the service needs packages that are not installed ({error.name}): pip install 'voiceclaim[server]'"
        ) from None
    from pipeline.audit import read_key
    from pipeline.config import load_config
    from pipeline.resources import find_config
    from pipeline.server.run import Address
    from pipeline.server.run import serve as run_service
    from pipeline.server.settings import HOSTS, MIB, Limits, Settings
    from pipeline.server.tokens import read_tokens
    from pipeline.store import SpeakerStore

    if tls_key is not None and tls_cert is None:
        raise typer.BadParameter("--tls-key is the key of a certificate: give --tls-cert, too")
    if store.exists() and any(store.iterdir()):
        SpeakerStore.open(store)
    if log is not None:
        read_key(log_key)
    address = Address(host, port, tls_cert, tls_key)
    settings = Settings(
        store=store,
        tokens=read_tokens(tokens),
        hosts=(*HOSTS, host),
        config=load_config(find_config(config) if config else None, override or ()) if config or override else None,
        evaluation=evaluation,
        log=log,
        log_key=log_key,
        jobs=jobs or cores(),
        outsiders=outsiders,
        aim_seconds=aim,
        limits=Limits(
            body_bytes=body_mib * MIB,
            file_seconds=file_seconds,
            stream_seconds=stream_seconds,
            streams=streams,
            idle_seconds=idle_seconds,
            grace_seconds=grace_seconds,
        ),
    )
    if not address.is_loopback and tls_cert is None:
        complain(
            "warning: tokens and voices cross the network unencrypted; give --tls-cert, or put a TLS proxy in front"
        )
    run_service(settings, address, threads=cores(), started=lambda url: say(f"serving {store} at {url}"))
