"""Metrics of the service for Prometheus, and its requests in the log: never a name, an address or a score."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.errors import ServiceError
from pipeline.server.logs import log_event

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"})  # others are any text of a caller's
_TRAINING_SECONDS = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1800.0)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = self._registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry, buckets=_SECONDS)
        self.requests = counter("voiceclaim_requests", "Requests answered", ("route", "method", "status"))
        self.request_seconds = histogram("voiceclaim_request_seconds", "Seconds to answer", ("route",))
        self.streams = gauge("voiceclaim_streams", "Open streams", ("kind",))
        self.streams_ended = counter("voiceclaim_streams_ended", "Streams by how they ended", ("kind", "how"))
        self.update_seconds = histogram("voiceclaim_update_seconds", "From a chunk to its update")
        self.audio_seconds = counter("voiceclaim_audio_seconds", "Audio received", ("kind",))
        self.decisions = counter("voiceclaim_decisions", "Claims decided", ("decision",))
        self.duplicates = counter("voiceclaim_duplicates", "Claims on audio that duplicates a known recording")
        self.identifications = counter("voiceclaim_identifications", "Identifications", ("decision",))
        self.enrollment_seconds = histogram(
            "voiceclaim_enrollment_seconds", "Waiting and training of an enrollment", buckets=_TRAINING_SECONDS
        )
        self.waiting = gauge("voiceclaim_waiting", "Requests that wait for their turn", ("what",))
        self.enrollments = counter("voiceclaim_enrollments", "Enrollments attempted", ("outcome",))
        self.removals = counter("voiceclaim_removals", "Removals attempted", ("outcome",))
        self.revision = gauge("voiceclaim_store_revision", "Revision of the store")
        self.speakers = gauge("voiceclaim_speakers", "Enrolled speakers")
        ProcessCollector(registry=registry)

    def watch(self, what: str, count: Callable[[], int]) -> None:
        """Show the number of requests that wait for ``what`` whenever it is asked for."""
        self.waiting.labels(what).set_function(count)

    def text(self) -> bytes:
        """Return the counters in Prometheus' text format."""
        return generate_latest(self._registry)


@contextmanager
def counting(outcomes: Counter, done: str) -> Iterator[None]:
    """Count the outcome of the block: ``done``, or the kind of the error that it raises."""
    try:
        yield
    except Exception as error:
        outcomes.labels(error.kind if isinstance(error, ServiceError) else type(error).__name__).inc()
        raise
    outcomes.labels(done).inc()


def count_requests(app: ASGIApp, metrics: Metrics) -> ASGIApp:
    """Wrap ``app`` so that every HTTP request is counted and timed by its route."""

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if route != "other" and scope["method"] in _METHODS else "other"
            metrics.requests.labels(route, method, str(status)).inc()
            seconds = time.perf_counter() - started
            metrics.request_seconds.labels(route).observe(seconds)
            level = logging.ERROR if status == 500 else logging.INFO
            log_event("request", level=level, route=route, method=method, status=status, seconds=seconds)

    return counted
