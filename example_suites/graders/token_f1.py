"""Token F1 and exact match, as question answering benchmarks count them: best over all accepted answers."""

import re
import string
from collections import Counter

ARTICLES = re.compile(r"\b(a|an|the)\b")


def tokens(text: str) -> list[str]:
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return ARTICLES.sub(" ", text).split()


def f1(answer: list[str], gold: list[str]) -> float:
    if not answer or not gold:
        return float(answer == gold)
    shared = sum((Counter(answer) & Counter(gold)).values())
    if shared == 0:
        return 0.0
    precision, recall = shared / len(answer), shared / len(gold)
    return 2 * precision * recall / (precision + recall)


def grade(sample, item):
    answer = tokens(sample["output_text"])
    golds = [tokens(gold) for gold in item["accepted"]]
    best = max(f1(answer, gold) for gold in golds)
    exact = any(answer == gold for gold in golds)
    return {
        "scores": {"f1": best, "exact_match": 1.0 if exact else 0.0},
        "judge": {"tokens": answer, "accepted": item["accepted"]},
    }
