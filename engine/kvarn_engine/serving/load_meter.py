"""Measured rates of an engine, as moving averages over its steps."""

from kvarn_engine.core.plan import StepPlan

_SMOOTHING = 0.2


class LoadMeter:
    """Rates are 0 until the first step that tells."""

    def __init__(self) -> None:
        self.prefill_tokens_per_s = 0.0
        self.decode_step_s = 0.0

    def observe(self, plan: StepPlan, step_s: float) -> None:
        """A step with prefill tokens tells the prefill rate, one without tells the decode step."""
        if step_s <= 0:
            return
        prefill = sum(len(entry.tokens) for entry in plan.entries if len(entry.tokens) > 1)
        if prefill:
            self.prefill_tokens_per_s = _smooth(self.prefill_tokens_per_s, prefill / step_s)
        else:
            self.decode_step_s = _smooth(self.decode_step_s, step_s)


def _smooth(old: float, new: float) -> float:
    return old + _SMOOTHING * (new - old) if old else new
