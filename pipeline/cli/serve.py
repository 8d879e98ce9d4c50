"""The command `voiceclaim serve`: the HTTP and WebSocket service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipeline.cli.background import enroll_background
from pipeline.cli.options import (
    ConfigFile,
    CostFalseAccept,
    CostMiss,
    Far,
    Jobs,
    Log,
    LogKey,
    Override,
    Prior,
    UnknownImpostors,
    opened_log,
    point_of,
    read_settings,
)
from pipeline.cli.terminal import cores, print_error, print_line
from pipeline.errors import StoreError
from pipeline.extras import library
from pipeline.server.limits import MIB, Limits
from pipeline.verification.attempts import AttemptLimits

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.verification.policies import Policy

_LIMITS = Limits()
_ATTEMPTS = AttemptLimits()


def serve(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Speaker store (created if missing).")],
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 8000,
    tokens: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of access tokens, one per line: scopes, a space, the token.",
            show_default="$VOICECLAIM_TOKENS",
        ),
    ] = None,
    evaluation: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Results of `voiceclaim evaluate` to show on the page.")
    ] = None,
    background: Annotated[
        bool, typer.Option(help="If there is no store yet, enroll the synthetic background voices first.")
    ] = True,
    log: Log = None,
    log_key: LogKey = None,
    config: ConfigFile = None,
    override: Override = None,
    unknown_impostors: UnknownImpostors = None,
    far: Far = None,
    prior: Prior = None,
    cost_miss: CostMiss = None,
    cost_false_accept: CostFalseAccept = None,
    aim: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Speech that the page asks for at enrollment.")
    ] = 40.0,
    streams: Annotated[int, typer.Option(min=1, help="Maximum number of simultaneous streams.")] = _LIMITS.streams,
    stream_seconds: Annotated[
        float, typer.Option(min=1, help="Maximum seconds of audio in one stream.")
    ] = _LIMITS.stream_seconds,
    file_seconds: Annotated[
        float, typer.Option(min=1, help="Maximum seconds of audio in one uploaded file.")
    ] = _LIMITS.file_seconds,
    body_mib: Annotated[int, typer.Option(min=1, help="Maximum size of a request in MiB.")] = _LIMITS.body_bytes // MIB,
    enroll_seconds: Annotated[
        float, typer.Option(min=1, help="Maximum seconds of audio in one enrollment.")
    ] = _LIMITS.enroll_seconds,
    train_seconds: Annotated[
        float, typer.Option(min=1, help="Maximum seconds that one enrollment may take.")
    ] = _LIMITS.train_seconds,
    share: Annotated[
        float, typer.Option(min=0.01, max=1, help="Largest share of streams and upload space for one token or address.")
    ] = _LIMITS.share,
    idle_seconds: Annotated[
        float, typer.Option(min=1, help="Maximum seconds of a stream without audio.")
    ] = _LIMITS.idle_seconds,
    grace_seconds: Annotated[
        float, typer.Option(min=1, help="Maximum seconds of a graceful shutdown.")
    ] = _LIMITS.grace_seconds,
    failures: Annotated[
        int, typer.Option(min=0, help="Failed attempts at one claim before a caller must wait; 0: no limit.")
    ] = _ATTEMPTS.failures,
    caller_failures: Annotated[
        int, typer.Option(min=1, help="Maximum failed attempts of one token in an hour.")
    ] = _ATTEMPTS.caller_failures,
    lockout_seconds: Annotated[
        float, typer.Option(min=1, help="Longest wait in seconds after failures.")
    ] = _ATTEMPTS.lockout_seconds,
    spool: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for uploads until they are enrolled.", show_default="in memory"),
    ] = None,
    spool_mib: Annotated[
        int, typer.Option(min=1, help="Maximum size of all uploads at a time in MiB.")
    ] = _LIMITS.spool_bytes // MIB,
    proxy: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="IP address or network of the reverse proxy whose X-Forwarded-For names the caller."
        ),
    ] = None,
    log_level: Annotated[
        Literal["error", "warning", "info", "debug"],
        typer.Option(help="Lowest level of the log lines (JSON, without names) on standard error."),
    ] = "warning",
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key (PEM).")] = None,
    jobs: Jobs = None,
) -> None:
    """Run the web service for enrollment and verification.

    Beyond this machine every caller needs a bearer token. Shuts down gracefully on SIGTERM or Ctrl-C; enrollment is
    atomic. docs/service.md describes the protocol, tokens, limits and deployment.

    Examples:
    - `voiceclaim serve speakers.store`
    - `voiceclaim serve speakers.store --host 0.0.0.0 --tokens tokens.txt --tls-cert cert.pem --tls-key key.pem`
    """
    for module in ("fastapi", "uvicorn"):
        library(module, "serve", "server")
    from pipeline.evaluation.report import read_metrics, read_results
    from pipeline.server import run
    from pipeline.server.security import is_loopback, read_tokens
    from pipeline.server.settings import HOSTS, Settings
    from pipeline.store.store import Store

    if tls_key is not None and tls_cert is None:
        raise typer.BadParameter("--tls-key requires --tls-cert")
    requested = read_settings(config, override)
    is_new = Store(store).state() is None
    policy = _policy(store, requested, far, (prior, cost_miss, cost_false_accept), is_new=is_new)
    if is_new:
        _announce(store, background)
    if evaluation is not None:
        read_metrics(evaluation)
        read_results(evaluation)
    _check_proxy(proxy)
    opened_log(log, log_key)
    accepted = read_tokens(tokens)
    attempts = AttemptLimits(failures, caller_failures=caller_failures, lockout_seconds=lockout_seconds)
    settings = Settings(
        store=store,
        tokens=accepted,
        hosts=(*HOSTS, host),
        config=requested,
        evaluation=evaluation,
        log=log,
        log_key=log_key,
        jobs=jobs or cores(),
        unknown_impostors=unknown_impostors,
        decide_by=policy,
        aim_seconds=aim,
        spool=spool,
        proxy=proxy,
        log_level=log_level,
        attempts=attempts if accepted is not None and failures else None,
        limits=Limits(
            body_bytes=body_mib * MIB,
            spool_bytes=spool_mib * MIB,
            file_seconds=file_seconds,
            enroll_seconds=enroll_seconds,
            train_seconds=train_seconds,
            share=share,
            stream_seconds=stream_seconds,
            streams=streams,
            idle_seconds=idle_seconds,
            grace_seconds=grace_seconds,
        ),
    )
    if not is_loopback(host) and tls_cert is None:
        print_error("warning: tokens and voices cross the network unencrypted; use --tls-cert or a TLS proxy")

    def prepare() -> None:
        if background and is_new:
            enroll_background(store, settings.config, jobs=settings.jobs)

    run.serve(
        settings,
        host,
        port,
        certificate=tls_cert,
        key=tls_key,
        threads=cores(),
        prepare=prepare,
        started=lambda url: print_line(f"serving {store} at {url}"),
    )


def _announce(store: Path, background: bool) -> None:
    """Print that there is no ``store`` yet, and how it will be made; raises StoreError if it cannot be."""
    if not store.parent.is_dir():
        raise StoreError(f"{store}: no store can be made here: there is no folder {store.parent}")
    what = "is made with synthetic background voices" if background else "is made by the first enrollment"
    print_error(f"{store}: no speaker store here yet; it {what}")


def _policy(
    path: Path, requested: Config | None, far: float | None, costs: tuple[float | None, ...], *, is_new: bool
) -> Policy:
    """Return the decision policy; raises VoiceclaimError if the store has other settings, or no trials for it."""
    from pipeline.enrollment.arguments import agreed_settings
    from pipeline.store.store import Store
    from pipeline.verification.policies import policy_of

    model = None if is_new else Store(path).load()
    config = agreed_settings(path, model, requested)
    policy = policy_of(false_accept=far, point=point_of(config, *costs))
    if model is not None and model.names and (far, *costs) != (None,) * 4:
        policy.decider(model, model.check_system(None))
    return policy


def _check_proxy(proxy: str | None) -> None:
    """Raise typer.BadParameter unless uvicorn takes ``proxy``: comma-separated addresses and networks, or *."""
    import ipaddress

    try:
        for one in [] if proxy is None or proxy == "*" else proxy.split(","):
            ipaddress.ip_network(one.strip())
    except ValueError as error:
        raise typer.BadParameter(f"--proxy must be an IP address or network, like 10.0.0.0/8, or *: {error}") from None
