"""The metrics as nested loops, straight from their definitions: what the fast code must equal."""

from __future__ import annotations

import math


def ranked(scores, excluded=()):
    """Labels of one point, best first. `scores` maps label to score; ties to the smaller label."""
    kept = [label for label in scores if label not in excluded and scores[label] > -math.inf]
    return sorted(kept, key=lambda label: (-scores[label], label))


def precision(rankings, truth, k):
    total = 0.0
    for labels, true in zip(rankings, truth, strict=True):
        for label in labels[:k]:
            total += (label in true) / k
    return 100 * total / len(truth)


def recall(rankings, truth, k):
    total = 0.0
    for labels, true in zip(rankings, truth, strict=True):
        for label in labels[:k]:
            total += 1 / len(true) if label in true else 0
    return 100 * total / len(truth)


def ndcg(rankings, truth, k):
    total = 0.0
    for labels, true in zip(rankings, truth, strict=True):
        if true:
            dcg = sum(1 / math.log2(place + 2) for place, label in enumerate(labels[:k]) if label in true)
            total += dcg / sum(1 / math.log2(place + 2) for place in range(min(k, len(true))))
    return 100 * total / len(truth)


def psp(rankings, truth, k, weights):
    gained = possible = 0.0
    for labels, true in zip(rankings, truth, strict=True):
        gained += sum(weights[label] for label in labels[:k] if label in true) / k
        possible += sum(sorted((weights[label] for label in true), reverse=True)[:k]) / k
    return 100 * gained / possible if possible else 0.0


def psndcg(rankings, truth, k, weights):
    gained = possible = 0.0
    for labels, true in zip(rankings, truth, strict=True):
        if not true:
            continue
        perfect = sum(1 / math.log2(place + 2) for place in range(min(k, len(true))))
        for place, label in enumerate(labels[:k]):
            if label in true:
                gained += weights[label] / math.log2(place + 2) / perfect
        for place, weight in enumerate(sorted((weights[label] for label in true), reverse=True)[:k]):
            possible += weight / math.log2(place + 2) / perfect
    return 100 * gained / possible if possible else 0.0


def mrr(rankings, truth):
    total = 0.0
    for labels, true in zip(rankings, truth, strict=True):
        for place, label in enumerate(labels, start=1):
            if label in true:
                total += 1 / place
                break
    return 100 * total / len(truth)


def coverage(rankings, truth, k):
    hit = {
        label for labels, true in zip(rankings, truth, strict=True) for label in labels[:k] if label in true
    }
    there = {label for true in truth for label in true}
    return 100 * len(hit) / len(there) if there else 0.0


def macro_precision(rankings, truth, k, num_labels):
    total = 0.0
    for label in range(num_labels):
        predicted = [label in labels[:k] for labels in rankings]
        correct = [there and label in true for there, true in zip(predicted, truth, strict=True)]
        total += sum(correct) / sum(predicted) if any(predicted) else 0.0
    return 100 * total / num_labels


def inverse_propensity(frequency, points, A, B):
    C = (math.log(points) - 1) * (B + 1) ** A
    return 1 + C * (frequency + B) ** -A


def everything(rankings, truth, ks, weights):
    """Every figure that `evaluate` gives, by the same names."""
    values = {"MRR": mrr(rankings, truth)}
    for k in ks:
        values[f"P@{k}"] = precision(rankings, truth, k)
        values[f"nDCG@{k}"] = ndcg(rankings, truth, k)
        values[f"R@{k}"] = recall(rankings, truth, k)
        values[f"PSP@{k}"] = psp(rankings, truth, k, weights)
        values[f"PSnDCG@{k}"] = psndcg(rankings, truth, k, weights)
        values[f"C@{k}"] = coverage(rankings, truth, k)
        values[f"macroP@{k}"] = macro_precision(rankings, truth, k, len(weights))
    return values
