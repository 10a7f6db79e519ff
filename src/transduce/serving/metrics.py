"""What a server counts, for Prometheus. No text of anybody is in it."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from transduce.serving.models import Models

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@final
class Metrics:
    """Counters of one server, in a registry of its own."""

    def __init__(self, models: Models) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter("transduce_requests", "Requests answered", ("path", "status"), registry=self._registry)
        self._seconds = Histogram(
            "transduce_request_seconds", "Time to the answer", ("path",), buckets=_SECONDS, registry=self._registry
        )
        self._texts = Counter("transduce_texts", "Texts translated", ("model",), registry=self._registry)
        self._characters = Counter(
            "transduce_characters", "Characters of text, by side", ("model", "side"), registry=self._registry
        )
        self._registry.register(_State(models))

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count an answer, and how long it took; ``path`` is a route's, so that there are only so many."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_texts(self, model: str, texts: Sequence[str], outputs: Sequence[dict[str, Any]]) -> None:
        """Count what a model has translated."""
        self._texts.labels(model).inc(len(texts))
        self._characters.labels(model, "source").inc(sum(map(len, texts)))
        self._characters.labels(model, "target").inc(sum(len(each["text"]) for each in outputs))

    def characters(self) -> int:
        """How many characters of source text were translated."""
        metric = next(iter(self._characters.collect()))
        found = [
            each.value for each in metric.samples if each.name.endswith("_total") and each.labels["side"] == "source"
        ]
        return int(sum(found))

    def render(self) -> bytes:
        """All figures, as Prometheus reads them."""
        return generate_latest(self._registry)


@final
class _State(Collector):
    """What is so at the moment when it is asked for."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """A gauge for each thing, with a value for each model."""
        ready = GaugeMetricFamily("transduce_model_ready", "Whether a model is loaded", labels=["model"])
        restarts = GaugeMetricFamily("transduce_model_restarts", "How often its process has died", labels=["model"])
        memory = GaugeMetricFamily("transduce_model_memory_bytes", "What loading it took at most", labels=["model"])
        waiting = GaugeMetricFamily("transduce_requests_under_way", "Requests not answered yet", labels=["model"])
        for process in self._models.processes:
            name = [process.model.name]
            ready.add_metric(name, float(process.is_ready))
            restarts.add_metric(name, process.restarts)
            memory.add_metric(name, process.memory)
            waiting.add_metric(name, self._models.admission(process.model).requests)
        yield from (ready, restarts, memory, waiting)
