"""Which pairings may exchange KV blocks. Called by `steps`; the routers compare the real fingerprints.

A pairing is `layout-prefill-decode` (see `revision.pairing`). Pods of one pairing can exchange blocks. When only one
pool's image changed, its new pods have to work with the other pool's present ones, since those stay; so two pairings
that share the layout and one of the sides go together too. When both sides changed, nothing is known.
"""

from collections.abc import Iterable, Mapping


def layout_classes(pairings: Iterable[str]) -> Mapping[str, str]:
    """Each pairing's class, named after one of its members."""
    known = sorted(set(pairings))
    found = {pairing: pairing for pairing in known}
    for one in known:
        for other in known:
            if found[one] != found[other] and _go_together(one, other):
                joined, left = found[one], found[other]
                found = {pairing: joined if each == left else each for pairing, each in found.items()}
    return found


def _go_together(one: str, other: str) -> bool:
    ours, theirs = one.split("-"), other.split("-")
    if len(ours) != 3 or len(theirs) != 3:
        return one == other
    return ours[0] == theirs[0] and (ours[1] == theirs[1] or ours[2] == theirs[2])
