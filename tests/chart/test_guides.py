"""README and docs about Kubernetes: what they name exists. Values, conditions, reasons, metrics, alerts, commands."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kvarn_cli.main import build_app
from kvarn_decode.settings import DecodeSettings
from kvarn_engine.process.settings_fields import leaves
from kvarn_operator.resources.conditions import ConditionType
from kvarn_operator.resources.labels import GROUP
from kvarn_operator.settings import OperatorSettings
from kvarn_prefill.settings import PrefillSettings
from kvarn_router.settings import RouterSettings
from typer.main import get_command

from tests.chart.registered import CODE, metrics
from tests.chart.rendering import CHART, Helm, of_kind, rendered

DOCS = CODE / "docs"
GUIDES = [CODE / "README.md", *(DOCS / f"{name}.md" for name in ("chart", "kubernetes", "runbook", "security"))]
RUNBOOK = (DOCS / "runbook.md").read_text(encoding="utf-8")
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
OPERATIONS = DOCS / "operations.md"
MODULES = frozenset({"kvarn_prefill", "kvarn_decode", "kvarn_router", "kvarn_operator"})
OF_HELM = frozenset({"wait", "reuse-values", "reset-then-reuse-values", "disable-openapi-validation"})
EXAMPLES = frozenset({"help", "name", "no-name", "some-name"})
KEYS_OF_SECRETS = frozenset({"tls.crt", "tls.key"})
OPERATOR = "".join(path.read_text(encoding="utf-8") for path in (CODE / "operator").rglob("*.py"))

guides = pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)


def words(guide: Path, pattern: str) -> list[str]:
    """What matches between backticks."""
    text = guide.read_text(encoding="utf-8")
    return [found for quoted in re.findall(r"`([^`\n]+)`", text) for found in re.findall(pattern, quoted)]


def console_lines(guide: Path) -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    return [line.strip()[2:].partition("  #")[0] for block in blocks for line in block.splitlines() if "$ " in line]


@guides
def test_values_named_in_the_docs_exist(guide: Path) -> None:
    named = words(guide, rf"^((?:{'|'.join(VALUES)})(?:\.\w+)+)(?![\w./])")
    settings = [setting for line in console_lines(guide) for setting in re.findall(r"--set ([\w.]+)=", line)]
    for path in {*named, *settings} - KEYS_OF_SECRETS:
        assert is_value(path.split("."), SCHEMA), path


def is_value(path: list[str], schema: dict[str, Any]) -> bool:
    if reference := schema.get("$ref"):
        return is_value(path, SCHEMA["definitions"][reference.rpartition("/")[2]])
    if not path:
        return True
    key, *rest = path
    if key == "NAME":
        inner = [schema["additionalProperties"]] if "properties" not in schema else schema["properties"].values()
        return any(is_value(rest, each) for each in inner)
    return key in schema.get("properties", {}) and is_value(rest, schema["properties"][key])


def test_that_check_itself_finds_what_is_missing() -> None:
    assert is_value(["models", "NAME", "router", "replicas"], SCHEMA)
    assert is_value(["images", "NAME", "digest"], SCHEMA)
    assert not is_value(["networkPolicy", "apiServers"], SCHEMA)


def value_files() -> Iterator[tuple[str, Any]]:
    for guide in GUIDES:
        for block in re.findall(r"```yaml\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL):
            yield guide.stem, yaml.safe_load(block)


def test_values_shown_in_the_docs_are_taken(helm: Helm, tmp_path: Path) -> None:
    shown = list(value_files())
    assert len(shown) == 3
    for _, values in shown:
        assert values.keys() <= VALUES.keys()
        path = tmp_path / "values.yaml"
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
        helm.template("--values", str(path))


@guides
def test_conditions_and_their_reasons_exist(guide: Path) -> None:
    known = {each.value for each in ConditionType}
    for name in words(guide, r"^([A-Z]\w+)=(?:True|False|Unknown)$"):
        assert name in known, name
    for reason in re.findall(r"`[A-Z]\w+=(?:True|False)`, `(\w+)`", guide.read_text(encoding="utf-8")):
        assert f'"{reason}"' in OPERATOR, reason


def test_whatever_calls_for_a_person_is_in_the_runbook() -> None:
    source = (CODE / "operator" / "kvarn_operator" / "reconcile" / "reports.py").read_text(encoding="utf-8")
    calls = re.findall(r'\("(\w+)", "(?:True|False)", "(\w+)"\)', source)
    assert len(calls) > 10
    assert sorted({reason for _, reason in calls if f"`{reason}`" not in RUNBOOK}) == []
    assert sorted({each.value for each in ConditionType if f"`{each.value}" not in RUNBOOK}) == []


def test_every_alert_is_in_the_runbook(helm: Helm) -> None:
    (rule,) = of_kind(rendered(helm, "everything"), "PrometheusRule").values()
    alerts = {each["alert"] for group in rule["spec"]["groups"] for each in group["rules"]}
    assert alerts == set(re.findall(r"`(Kvarn[A-Z]\w+)`", RUNBOOK))


@guides
def test_metrics_exist(guide: Path) -> None:
    assert [name for name in words(guide, r"^kvarn_[a-z_]+$") if name not in metrics().series] == []


def test_operations_lists_every_metric_and_no_other() -> None:
    named = {name for name in words(OPERATIONS, r"^kvarn_[a-z_]+$") if not name.endswith("_") and name not in MODULES}
    assert named == metrics().names


@pytest.mark.parametrize("document", [*GUIDES, OPERATIONS, DOCS / "api.md"], ids=lambda path: path.stem)
def test_flags_exist(document: Path) -> None:
    """Of our processes and commands. Those of helm and kubectl mostly stand in whole commands."""
    quoted = re.findall(r"`(--[a-z][^`\n]*)`", document.read_text(encoding="utf-8"))
    named = {flag for each in quoted for flag in re.findall(r"--([a-z][a-z-]+[a-z])(?![\w*-])", each)}
    assert sorted(named - our_flags() - OF_HELM - EXAMPLES) == []


def our_flags() -> set[str]:
    roots = (RouterSettings, PrefillSettings, DecodeSettings, OperatorSettings)
    found = {leaf.flag.removeprefix("--") for root in roots for leaf in leaves(root)}
    return found | {option.removeprefix("--") for option in options(get_command(build_app()))} | {"config"}


def options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for each in getattr(command, "commands", {}).values():
        yield from options(each)


@guides
def test_commands_of_the_plugin_exist(guide: Path) -> None:
    plugin = get_command(build_app()).commands["k8s"].commands  # type: ignore[attr-defined]
    for line in (*words(guide, r"^kubectl kvarn .*"), *console_lines(guide)):
        if (given := re.match(r"kubectl kvarn (\w+)(.*)", line)) is None:
            continue
        known = {flag for each in plugin[given[1]].params for flag in (*each.opts, *each.secondary_opts)}
        assert set(re.findall(r" (--?[a-z][a-z-]*)", given[2])) <= known, line


@guides
def test_resources_are_called_by_names_that_kubectl_knows(guide: Path) -> None:
    names = set(re.findall(r"kubectl (?:get|describe|scale|explain) ([a-z]+(?:,[a-z]+)*)\b", guide.read_text("utf-8")))
    crds = [yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["names"] for path in CHART.glob("crds/*.yaml")]
    known = {name for each in crds for name in (each["plural"], each["singular"], *each["shortNames"])}
    assert {name for each in names for name in each.split(",")} <= known | {"node", "lease"}


@guides
def test_links_into_a_page_lead_to_a_heading(guide: Path) -> None:
    for page, anchor in re.findall(r"\]\(([\w./]*)#([\w-]+)\)", guide.read_text(encoding="utf-8")):
        text = (guide.parent / page if page else guide).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert anchor in anchors, f"{page}#{anchor}"


def test_example_of_scaling_from_outside_names_what_exists() -> None:
    hpa, scaled = yaml.safe_load_all((DOCS / "examples" / "external-scaling.yaml").read_text(encoding="utf-8"))
    crd = yaml.safe_load((CHART / "crds" / "workerpools.kvarn.dev.yaml").read_text(encoding="utf-8"))["spec"]
    (version,) = crd["versions"]
    assert "scale" in version["subresources"]
    for body in (hpa, scaled):
        target = body["spec"]["scaleTargetRef"]
        assert (target["apiVersion"], target["kind"]) == (f"{GROUP}/{version['name']}", crd["names"]["kind"])
    named = [hpa["spec"]["metrics"][0]["pods"]["metric"]["name"]]
    named += re.findall(r"\bkvarn_[a-z_]+", scaled["spec"]["triggers"][0]["metadata"]["query"])
    assert len(named) == 3
    assert [name for name in named if name not in metrics().series] == []
