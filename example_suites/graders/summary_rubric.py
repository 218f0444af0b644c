"""A rubric for summaries: short enough, says what matters, says nothing that the source does not."""

import re


def numbers(text):
    return set(re.findall(r"\d+(?:[.,]\d+)*", text))


def grade(sample, item):
    summary, source = sample["output_text"], item["article"]
    words = summary.split()
    points = {
        "length": len(words) <= item["max_words"],
        "coverage": all(point.lower() in summary.lower() for point in item["key_points"]),
        "no_invented_numbers": numbers(summary) <= numbers(source),
        "ends_properly": summary.rstrip().endswith((".", "!", "?")),
    }
    score = sum(1.0 if passed else 0.0 for passed in points.values()) / len(points)
    return {"scores": {"rubric": score}, "judge": {"points": points, "words": len(words)}}
