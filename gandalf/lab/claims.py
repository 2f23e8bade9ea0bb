"""Judge the paper's claims: each is a function from results to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from gandalf.lab.convergence import TOLERANCE
from gandalf.lab.evidence import Basis, Finding, View, as_good, better, told_of
from gandalf.lab.results import PARTS, Contrast, Results
from gandalf.lab.store import Line
from gandalf.lab.studies import SHARES
from gandalf.lab.variants import OWN_BASELINE

Says = Literal["holds", "holds partly", "fails", "reduced", "not tested"]
P, PSP = ("P@1", "P@3", "P@5"), ("PSP@1", "PSP@3", "PSP@5")
FIRST_AND_TAIL = ("P@1", "PSP@5")
SLACK = 0.05  # of memory and latency: what two runs of one model differ by
MILLION, MINUTES = 1_300_000, 2.0  # labels and time that the paper speaks of
AVERAGE = 5.0  # percent that label points are said to gain on average
STRAIGHT = 0.9  # least R^2 of a straight line


@dataclass(frozen=True)
class Verdict:
    """A claim on a data set, of all test texts or of those that are no label's."""

    claim: str
    words: str
    data: str
    part: str
    says: Says
    findings: tuple[Finding, ...]
    basis: Basis

    @property
    def numbers(self) -> str:
        """Return every figure in words."""
        return "; ".join(each.numbers for each in self.findings)

    @property
    def count(self) -> str:
        """Count the figures for and against the claim."""
        if not self.findings:
            return ""
        told = [each for each in self.findings if each.yes is not None]
        unknown = sum(each.untold for each in self.findings)
        if not told and not unknown:
            return "the numbers"
        against = sum(each.no for each in told)
        contrary = f", {against} the contrary" if against else ""
        untold = f", {unknown} cannot be told from chance by one seed" if unknown else ""
        yes = sum(bool(each.yes) for each in told)
        return f"{yes} of {len(told) + unknown} figures say so{contrary}{untold}"


def tail_first(view: View) -> Iterator[Finding]:
    """Compare tail-first with random label points, share by share."""
    for share in SHARES:
        yield from view.beats(f"tail {share} %", f"random {share} %", FIRST_AND_TAIL)


def without_modules(view: View) -> Iterator[Finding]:
    """Compare a base system with label points to its cousin that reads label texts."""
    yield from _systems(view, (("astec", "G"), ("eclare", "D")), as_good)
    yield from _systems(view, (("inceptionxml", "G"), ("inceptionxml-lf", "D")), as_good)


def _systems(
    view: View, rows: Sequence[tuple[str, str]], judge: Callable[[Contrast, str], Finding]
) -> Iterator[Finding]:
    """Compare a row of one system with a row of another."""
    (one, first), (other, second) = rows
    for place in (each for each in view.places if each.system == one):
        for rival in (each for each in view.places if each.system == other):
            for name in FIRST_AND_TAIL:
                found = view.across((place, first), (rival, second), name)
                if found is not None:
                    yield judge(found, f"{one} + {first} against {other}, {name}")


def no_cost(view: View) -> Iterator[Finding]:
    """Compare memory and latency with and without label points, on each kind of device."""
    measured = set[str]()
    for place in view.places:
        without, with_points = (view.results.rows(place).get(row, []) for row in "DG")
        for key, what in (("peak_memory", "memory"), ("latency_ms", "latency")):
            one, other = _least(without, key), _least(with_points, key)
            for device in sorted(one.keys() & other.keys()):
                more = other[device] / one[device] - 1
                told = f"{place.system} {what} {100 * more:+.1f} % ({device})"
                measured.add(what)
                yield Finding(more <= SLACK, more > SLACK, told)
    if measured == {"memory"}:  # half of the claim
        yield Finding(False, False, "latency was not measured")


def _least(lines: Iterable[Line], key: str) -> dict[str, float]:
    """Return the least measurement on each kind of device."""
    found: dict[str, float] = {}
    for line in lines:
        if line.get(key):
            found[line["device"]] = min(found.get(line["device"], np.inf), line[key])
    return found


def average_gain(view: View) -> Iterator[Finding]:
    """Average the relative gain of P@1 over systems."""
    gains = {}
    for place in view.places:
        base = view.value(place, OWN_BASELINE.get(place.system, "D"), "P@1")
        with_points = view.value(place, "G", "P@1")
        if base and with_points is not None:
            gains[place.system] = 100 * (with_points - base) / base
    if gains:
        average = float(np.mean(list(gains.values())))
        told = ", ".join(f"{system} {gain:+.1f} %" for system, gain in gains.items())
        yield Finding(average >= AVERAGE, average <= 0, f"mean {average:+.1f} % of P@1 ({told})")


def linear(view: View) -> Iterator[Finding]:
    """Fit a straight line to the figures by share of labels."""
    for place in view.places:
        names = {0: "D", **{share: f"random {share} %" for share in SHARES}, 100: "G"}
        for name in FIRST_AND_TAIL:
            found = {share: view.value(place, row, name) for share, row in names.items()}
            known = [(share, value) for share, value in found.items() if value is not None]
            if len(known) == len(names):
                yield _straight(known, f"{place.system} {name}")


def _straight(known: Sequence[tuple[int, float]], what: str) -> Finding:
    shares, values = (np.array(each, dtype=np.float64) for each in zip(*known, strict=True))
    slope = float(np.polyfit(shares, values, 1)[0])
    spread = float(np.ptp(values))
    r2 = 0.0 if spread == 0 else float(np.corrcoef(shares, values)[0, 1] ** 2)
    numbers = f"{what} {100 * slope:+.2f} from no to all labels, R² {r2:.2f}"
    return Finding(slope > 0 and r2 >= STRAIGHT, slope <= 0, numbers)


def keeps_improving(view: View) -> Iterator[Finding]:
    """Compare what twice the steps add to D and to G."""
    for place in view.places:
        found = {row: view.contrast(place, f"{row} x 2", f"{row} x 1", "P@1") for row in "DG"}
        d, g = found["D"], found["G"]
        if d is not None and g is not None:
            told = "; ".join(told_of(each, f"{row} x 2 - x 1") for row, each in (("D", d), ("G", g)))
            grows = g.difference > 0 and g.real
            short = d.difference >= TOLERANCE  # D itself is far from saturated
            unknown = short or not g.by
            numbers = f"{place.system}, held-out P@1: {told}"
            yield Finding(None if unknown else grows, not unknown and not grows, numbers, reduced=short, on=g)


def denser_gains_less(view: View) -> Iterator[Finding]:
    """Compare gains on thinned sets, by points per label."""
    own = [place for place in view.results.places("density") if place.data.partition("?")[0] == view.data]
    for system in dict.fromkeys(place.system for place in view.places):
        found = []
        for place in (each for each in own if each.system == system and "pairs=" not in each.data):
            base, with_points = view.value(place, "D", "P@1"), view.value(place, "G", "P@1")
            fact = view.results.facts.get(place.data)
            if base and with_points is not None and fact:
                found.append((fact["points_per_label"], 100 * (with_points - base) / base))
        if len(found) >= 3:
            found.sort()
            gains = [gain for _, gain in found]
            falls = all(a >= b for a, b in pairwise(gains))
            told = ", ".join(f"{gain:+.1f} % at {density:.1f}" for density, gain in found)
            yield Finding(falls, gains[-1] >= gains[0], f"{system}, points per label: {told}")


def quick_graph(view: View) -> Iterator[Finding]:
    """Compare the time of the label graph with the paper's."""
    fact = view.results.facts.get(view.data, {})
    if "graph_seconds" in fact:
        seconds, labels = fact["graph_seconds"]["ratio"], fact["labels"]
        large = labels >= MILLION
        in_time = seconds <= 60 * MINUTES
        numbers = f"{seconds:.2f} s at {labels:,} labels"
        yield Finding(in_time if large else None, large and not in_time, numbers)


@dataclass(frozen=True)
class Claim:
    """A claim in words, and the function that judges it."""

    words: str
    judge: Callable[[View], Iterator[Finding]]
    needs_plateau: bool = True  # says something of runs at a plateau only


CLAIMS: dict[str, Claim] = {
    "C1": Claim("Z alone beats D on tail metrics", lambda view: view.beats("Z", "D", PSP)),
    "C2": Claim("G beats D everywhere", lambda view: view.beats("G", None, (*P, *PSP))),
    "C3": Claim("U(G,N) beats D at equal compute", lambda view: view.beats("U(G,N)", "D", (*P, *PSP))),
    "C4": Claim("soft targets beat self-annotation", lambda view: view.beats("G", "Z1", (*P, *PSP))),
    "C5": Claim("tail-first sub-sampling beats random", tail_first),
    "C6": Claim(
        "a threshold of 0.1 is best", lambda view: view.best("G", ("delta 0", "delta 0.2"), FIRST_AND_TAIL)
    ),
    "C7": Claim(
        "ratios are at least as good as the random walk",
        lambda view: view.no_worse("G", ("random walk",), FIRST_AND_TAIL),
    ),
    "C8": Claim("base + G reaches base + LTE + GALE", without_modules),
    "C9": Claim("no extra memory, no cost at inference", no_cost, needs_plateau=False),
    "C10": Claim("5 % relative gain on average", average_gain),
    "C11": Claim(
        "Astec + G beats SiameseXML",
        lambda view: _systems(view, (("astec", "G"), ("siamesexml", "D")), better),
    ),
    "C12": Claim("gains grow linearly with the share of labels", linear),
    "C13": Claim("D saturates while G keeps improving with compute", keeps_improving, needs_plateau=False),
    "C14": Claim("gains shrink as points per label grow", denser_gains_less),
    "C15": Claim("the graph takes less than two minutes at 1.3M labels", quick_graph, needs_plateau=False),
}
WHOLE = ("C9", "C13", "C15")  # that know no kinds of text


def verdicts(results: Results) -> list[Verdict]:
    """Judge every claim on every whole data set, for all texts and for new texts."""
    sets = dict.fromkeys(place.data for place in results.places() if "?" not in place.data)
    return [
        _verdict(View(results, data, part), claim)
        for data in sets
        for claim in CLAIMS
        for part in PARTS
        if part == "all" or claim not in WHOLE
    ]


def _verdict(view: View, claim: str) -> Verdict:
    """Judge a claim; runs that were not trained to a plateau support no claim about figures."""
    about = CLAIMS[claim]
    used = replace(view, settled=about.needs_plateau)
    found = list(about.judge(used))
    says = _says(found)
    if says == "not tested" and about.needs_plateau:
        used, found = view, list(about.judge(view))
        says = "not tested" if _says(found) == "not tested" else "reduced"
    basis = Basis.of(used, found, about.needs_plateau)
    return Verdict(claim, about.words, view.data, view.part, says, tuple(found), basis)


def _says(found: Sequence[Finding]) -> Says:
    """Return the verdict; a figure that cannot be told from chance says neither yes nor no."""
    told = [each for each in found if each.yes is not None]
    if not told:
        return "reduced" if any(each.reduced for each in found) else "not tested"
    yes = sum(bool(each.yes) for each in told)
    if yes == len(told) and not any(each.untold for each in found):
        return "holds"
    return "holds partly" if yes else "fails"
