"""Accuracy and macro F1 over a whole group, and for each sample whether it was right."""

from collections import Counter


def grade_batch(samples):
    true_positive, predicted, actual = Counter(), Counter(), Counter()
    updates = []
    for sample in samples:
        label, gold = sample["extracted_output"], sample["target"]
        predicted[label] += 1
        actual[gold] += 1
        if label == gold:
            true_positive[gold] += 1
        updates.append({"sample_id": sample["sample_id"], "scores": {"correct": 1.0 if label == gold else 0.0}})
    per_label = {}
    for label in sorted(actual):
        denominator = predicted[label] + actual[label]
        per_label[label] = 2 * true_positive[label] / denominator if denominator else 0.0
    return {
        "metrics": {
            "accuracy": sum(true_positive.values()) / len(samples),
            "macro_f1": sum(per_label.values()) / len(per_label),
        },
        "samples": updates,
    }
