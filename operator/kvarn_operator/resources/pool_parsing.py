"""`spec.prefill` and `spec.decode` of a ModelService. Called by `service_parsing`."""

from kvarn_operator.resources.fields import Fields
from kvarn_operator.resources.pool_template import Drain, Pool, Scaling
from kvarn_operator.resources.template_parsing import parse_template
from kvarn_operator.scaling.spec import Behaviour, RateLimit, ScalingMode

MAX_REPLICAS = 1000
DAY_S = 86_400


def parse_pool(fields: Fields) -> Pool:
    return Pool(
        replicas=fields.integer("replicas", 1, 0, MAX_REPLICAS),
        scaling=_scaling(fields.section("scaling")),
        drain=_drain(fields.section("drain")),
        template=parse_template(fields.section("template")),
    )


def _scaling(fields: Fields) -> Scaling:
    default = Scaling()
    scaling = Scaling(
        mode=fields.choice("mode", default.mode),
        minimum=fields.integer("min", default.minimum, 0, MAX_REPLICAS),
        maximum=fields.integer("max", default.maximum, 1, MAX_REPLICAS),
        behaviour=_behaviour(fields.section("behaviour")),
        override_s=float(fields.integer("overrideSeconds", round(default.override_s), 0, 7 * DAY_S)),
        zero_after_s=float(fields.integer("zeroAfterSeconds", round(default.zero_after_s), 0, 7 * DAY_S)),
    )
    if scaling.minimum > scaling.maximum:
        raise fields.error("min", f"({scaling.minimum}) is above max ({scaling.maximum})")
    if scaling.minimum == 0 and scaling.mode is not ScalingMode.SLO:
        raise fields.error(
            "min", f"0 (scale to zero when idle) needs mode SLO; in mode {scaling.mode.value} write replicas: 0"
        )
    return scaling


def _behaviour(fields: Fields) -> Behaviour:
    default = Behaviour()
    up, down = fields.section("scaleUp"), fields.section("scaleDown")
    return Behaviour(
        up_window_s=_window(up, default.up_window_s),
        down_window_s=_window(down, default.down_window_s),
        up_limit=_rate_limit(up, default.up_limit, 10_000),
        down_limit=_rate_limit(down, default.down_limit, 100),
    )


def _window(fields: Fields, default: float) -> float:
    return float(fields.integer("stabilizationWindowSeconds", round(default), 0, 3600))


def _rate_limit(fields: Fields, default: RateLimit, most_percent: int) -> RateLimit:
    return RateLimit(
        pods=fields.integer("pods", default.pods, 0, MAX_REPLICAS),
        share=fields.integer("percent", round(default.share * 100), 0, most_percent) / 100,
        period_s=float(fields.integer("periodSeconds", round(default.period_s), 1, 1800)),
    )


def _drain(fields: Fields) -> Drain:
    return Drain(float(fields.integer("timeoutSeconds", round(Drain().timeout_s), 0, DAY_S)))
