"""What the worker process is told: arguments, environment, resources."""

from dataclasses import fields, replace
from typing import Any

import pytest
from kvarn_decode.settings import DecodeSettings
from kvarn_engine.process.settings import load_settings
from kvarn_operator.resources.model_service import EngineOptions, Model, ModelSource, SecretKey, SourceKind
from kvarn_operator.resources.pool_template import PodTemplate
from kvarn_operator.scaling.spec import Role
from kvarn_prefill.settings import PrefillSettings

from tests.unit.operator.objects.object_builders import DEFAULTS, environment, flags, pod, spec, worker

ENGINE = EngineOptions(
    engine="simulated", dtype="float32", block_size=32, max_model_len=4096, max_batch_tokens=1024, max_sequences=128,
    num_blocks=500, kv_memory_gib=2.5, threads=3,
)  # fmt: skip


class TestArguments:
    def test_the_least(self) -> None:
        assert worker(pod())["args"] == [
            "--engine=torch", "--dtype=auto", "--block-size=16",
            "--host=0.0.0.0", "--port=7000", "--metrics-port=7001", "--worker-id=$(POD_NAME)",
            "--model=/opt/kvarn/models/smollm2-135m", "--shutdown-timeout-s=300", "--log-json",
        ]  # fmt: skip

    def test_all_engine_options(self) -> None:
        found, names = flags(pod(spec(engine=ENGINE))), [each.name.replace("_", "-") for each in fields(ENGINE)]
        assert {name: found[name] for name in names} == {
            "engine": "simulated", "dtype": "float32", "block-size": "32", "max-model-len": "4096",
            "max-batch-tokens": "1024", "max-sequences": "128", "num-blocks": "500", "kv-memory-gib": "2.5",
            "threads": "3",
        }  # fmt: skip

    @pytest.mark.parametrize(("role", "settings"), [(Role.PREFILL, PrefillSettings), (Role.DECODE, DecodeSettings)])
    def test_the_process_understands_them(self, role: Role, settings: Any) -> None:
        body = pod(
            spec(PodTemplate(args=(("max-waiting", "9"),)), engine=ENGINE), role, replace(DEFAULTS, tls_secret="t")
        )
        arguments = [argument.replace("$(POD_NAME)", "worker-0") for argument in worker(body)["args"]]
        found = load_settings(settings, arguments, {})
        assert (found.worker.worker_id, found.worker.port, found.worker.metrics_port) == ("worker-0", 7000, 7001)
        assert (found.batch.max_waiting, found.batch.max_sequences, found.model.kv_memory_gib) == (9, 128, 2.5)
        assert (found.worker.shutdown_timeout_s, found.log.log_json) == (300.0, True)

    def test_what_the_operator_relies_on_comes_last(self) -> None:
        template = PodTemplate(args=(("port", "1"), ("model", "other"), ("dtype", "float16"), ("log-level", "debug")))
        found = flags(pod(spec(template)))
        assert (found["port"], found["model"]) == ("7000", "/opt/kvarn/models/smollm2-135m")
        assert (found["dtype"], found["log-level"]) == ("float16", "debug")

    def test_plain_logs(self) -> None:
        assert "--log-json" not in worker(pod(defaults=replace(DEFAULTS, log_json=False)))["args"]

    def test_certificates(self) -> None:
        found = flags(pod(defaults=replace(DEFAULTS, tls_secret="certs")))
        assert {name: value for name, value in found.items() if name.startswith("tls")} == {
            "tls-cert-file": "/etc/kvarn/tls/tls.crt",
            "tls-key-file": "/etc/kvarn/tls/tls.key",
            "tls-ca-file": "/etc/kvarn/tls/ca.crt",
        }
        assert not any(name.startswith("tls") for name in flags(pod()))


@pytest.mark.parametrize(
    ("source", "reference", "revision"),
    [
        (ModelSource(), "/opt/kvarn/models/smollm2-135m", None),
        (ModelSource(SourceKind.HUB, "org/name"), "org/name", "v2"),
        (ModelSource(SourceKind.PVC, "claim", "llama/8b"), "/models/llama/8b", None),
        (ModelSource(SourceKind.PVC, "claim"), "/models", None),
        (ModelSource(SourceKind.IMAGE, "image:1", "model"), "/models/model", None),
        (ModelSource(SourceKind.URL, "https://host.example/m.tar"), "https://host.example/m.tar", None),
    ],
    ids=lambda value: value.kind.value if isinstance(value, ModelSource) else None,
)
def test_where_the_model_is(source: ModelSource, reference: str, revision: str | None) -> None:
    found = flags(pod(spec(model=Model(source=source, revision="v2"))))
    assert (found["model"], found.get("model-revision")) == (reference, revision)


def test_a_hub_model_without_revision() -> None:
    assert "model-revision" not in flags(pod(spec(model=Model(source=ModelSource(SourceKind.HUB, "org/name")))))


class TestEnvironment:
    def test_the_least(self) -> None:
        assert environment(pod()) == {
            "POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
            "HOME": "/tmp", "KVARN_CACHE": "/cache", "HF_HOME": "/cache/hf", "OMP_NUM_THREADS": "1",
        }  # fmt: skip

    def test_threads(self) -> None:
        assert environment(pod(spec(engine=EngineOptions(threads=6))))["OMP_NUM_THREADS"] == "6"

    @pytest.mark.parametrize("kind", list(SourceKind))
    def test_the_token_is_for_the_hub_and_never_written_out(self, kind: SourceKind) -> None:
        model = Model(source=ModelSource(kind, "somewhere"), secret=SecretKey("hub-token", "key"))
        found = environment(pod(spec(model=model))).get("HF_TOKEN")
        wanted = {"secretKeyRef": {"name": "hub-token", "key": "key"}}
        assert found == (wanted if kind is SourceKind.HUB else None)

    def test_the_user_wins_but_for_the_name_of_the_pod(self) -> None:
        given = (
            {"name": "HF_HOME", "value": "/hf"},
            {"name": "POD_NAME", "value": "x"},
            {"name": "MORE", "value": "y"},
        )
        found = environment(pod(spec(PodTemplate(env=given))))
        assert (found["HF_HOME"], found["MORE"]) == ("/hf", "y")
        assert found["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}


class TestResources:
    @pytest.mark.parametrize(
        ("engine", "source", "requests", "limits"),
        [
            (EngineOptions(), ModelSource(), ("500m", "2048Mi"), ("2", "4096Mi")),
            (EngineOptions(threads=4, kv_memory_gib=8.5), ModelSource(), ("2000m", "9728Mi"), ("5", "11776Mi")),
            (EngineOptions(), ModelSource(SourceKind.HUB, "a/b"), ("500m", "5120Mi"), ("2", "33792Mi")),
            (EngineOptions(engine="simulated"), ModelSource(), ("100m", "256Mi"), ("2", "1024Mi")),
        ],
        ids=["embedded", "threads and store", "hub", "simulated"],
    )
    def test_there_always_are_some(
        self, engine: EngineOptions, source: ModelSource, requests: tuple[str, str], limits: tuple[str, str]
    ) -> None:
        found = worker(pod(spec(engine=engine, model=Model(source=source))))["resources"]
        assert (found["requests"]["cpu"], found["requests"]["memory"]) == requests
        assert (found["limits"]["cpu"], found["limits"]["memory"]) == limits

    def test_what_is_given_is_taken_as_it_is(self) -> None:
        given = {"limits": {"nvidia.com/mig-1g.10gb": 1, "memory": "9Gi"}, "claims": [{"name": "gpu"}]}
        assert worker(pod(spec(PodTemplate(resources=given))))["resources"] == {
            "limits": {"nvidia.com/mig-1g.10gb": "1", "memory": "9Gi"}, "claims": [{"name": "gpu"}],
        }  # fmt: skip
