"""1.0 within one per cent of the right number; the relative error is kept beside it."""

from decimal import Decimal


def grade(sample, item):
    if sample["extracted_output"] is None:
        return {"scores": {"within_tolerance": 0.0}, "judge": {"why": "the answer holds no number"}}
    answer, gold = Decimal(sample["extracted_output"]), Decimal(item["target"])
    error = abs(answer - gold) / max(abs(gold), Decimal("1e-12"))
    return {
        "scores": {"within_tolerance": 1.0 if error <= Decimal("0.01") else 0.0},
        "judge": {"relative_error": float(error)},
    }
