"""One pool in the light of all: what is old, what pairs with the wanted pods, how many must go on serving.

Made by `steps` for pools with a target above 0. Pure arithmetic on counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from kvarn_operator.resources.model_service import Rollout
from kvarn_operator.rollout.progress import PodGroup, PoolProgress


@dataclass(frozen=True, slots=True)
class Standing:
    progress: PoolProgress
    rollout: Rollout
    classes: Mapping[str, str]
    """Of every pairing, its layout class."""

    yields: bool = False
    """It makes no use of its surge, see `shortage`."""

    gives: int = 0
    """Wanted pods that it gives back, see `shortage`."""

    @property
    def target(self) -> int:
        return self.progress.target

    @property
    def surge(self) -> int:
        """No larger than the ratio's tolerance of the pool, and yet one pod if any is allowed."""
        most = max(1, int(self.target * self.rollout.ratio_tolerance))
        return 0 if self.yields else min(self.rollout.max_surge, most)

    @property
    def layout(self) -> str:
        return self.classes[self.progress.pairing]

    @property
    def alike(self) -> int:
        """Serving old pods that pair with wanted ones."""
        return sum(group.serving for group in self.progress.old if self.classes[group.pairing] == self.layout)

    @property
    def foreign(self) -> int:
        """Serving old pods that do not."""
        return sum(group.serving for group in self.progress.old if self.classes[group.pairing] != self.layout)

    @property
    def excess(self) -> int:
        """Wanted pods beyond the target, and those given back."""
        return max(0, self.progress.current.total - self.target) + self.gives

    @property
    def serving(self) -> int:
        """Once the excess is gone, of which idle pods go first."""
        current = self.progress.current
        return self.progress.serving - max(0, self.excess - current.idle)

    @property
    def renewed(self) -> Fraction:
        """Share of the target that can serve in pairs of the wanted layout."""
        return min(Fraction(1), Fraction(self.progress.current.serving + self.alike, self.target))

    @property
    def spared(self) -> int:
        """Lapsed old pods that stay, because the pool is short without them. A new pod that needs the node matters
        more, since nobody knows whether they come back."""
        if self.lacks_node:
            return 0
        lapsed = sum(group.lapsed for group in self.progress.old)
        return min(lapsed, max(0, self.target - self.rollout.max_unavailable - self.progress.serving))

    @property
    def placed(self) -> int:
        """Pods that have a node."""
        return self.progress.total - sum(group.unschedulable for group in self.progress.groups)

    @property
    def starves(self) -> bool:
        """Not even the target has found a node."""
        return self.progress.current.unschedulable > 0 and self.placed < self.target

    @property
    def lacks_node(self) -> bool:
        """Wanted pods wait for a node, nothing else is on its way, and no pod that drains will make room."""
        current = self.progress.current
        return current.unschedulable > 0 and current.starting + current.lapsed == 0 and self.progress.draining == 0

    @property
    def swaps(self) -> bool:
        """One pod that may be away and no room for a second: it has to go before its successor can come."""
        return self.rollout.max_surge == 0 and self.target == 1

    @property
    def gives_up_last(self) -> bool:
        """The user allows that none serves, and the last one that does is in the way of its successor."""
        if self.rollout.max_unavailable < self.target or self.progress.current.serving or self.progress.serving > 1:
            return False
        return self.swaps or self.lacks_node

    def serving_in(self, layout: str) -> int:
        """Those that may be back at any moment included."""
        return sum(group.serving + group.lapsed for group in self.progress.groups if self._class_of(group) == layout)

    def _class_of(self, group: PodGroup) -> str:
        """Pods of the wanted revision are of the wanted layout, whatever their annotation says."""
        return self.layout if group.revision == self.progress.revision else self.classes[group.pairing]


def complete_layouts(pools: Sequence[Standing]) -> Mapping[str, Fraction]:
    """Layouts of which every pool has a serving pod, with the share of the whole that they can serve."""
    layouts = {layout for pool in pools for layout in pool.classes.values()}
    shares = {
        layout: min((Fraction(pool.serving_in(layout), pool.target) for pool in pools), default=Fraction(0))
        for layout in sorted(layouts)
    }
    return {layout: share for layout, share in shares.items() if share > 0}
