"""What the service counts, for Prometheus: never a name, an address or a score."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        registry = self._registry
        self.requests = Counter(
            "voiceclaim_requests", "Requests answered", ("route", "method", "status"), registry=registry
        )
        self.request_seconds = Histogram(
            "voiceclaim_request_seconds", "Seconds to answer", ("route",), buckets=_SECONDS, registry=registry
        )
        self.streams = Gauge("voiceclaim_streams", "Streams open now", ("kind",), registry=registry)
        self.streams_ended = Counter(
            "voiceclaim_streams_ended", "Streams by how they ended", ("kind", "how"), registry=registry
        )
        self.update_seconds = Histogram(
            "voiceclaim_update_seconds", "From a chunk to its update", buckets=_SECONDS, registry=registry
        )
        self.audio_seconds = Counter("voiceclaim_audio_seconds", "Audio taken in", ("kind",), registry=registry)
        self.decisions = Counter("voiceclaim_decisions", "Claims decided", ("decision",), registry=registry)
        self.enrollments = Counter("voiceclaim_enrollments", "Enrollments tried", ("outcome",), registry=registry)
        self.removals = Counter("voiceclaim_removals", "Removals tried", ("outcome",), registry=registry)
        self.revision = Gauge("voiceclaim_store_revision", "Revision of the store", registry=registry)
        self.speakers = Gauge("voiceclaim_speakers", "Speakers that can be claimed", registry=registry)
        ProcessCollector(registry=registry)

    def page(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self._registry)
