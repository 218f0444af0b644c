"""1.0 where the answer is the target, apart from case, white space and a full stop."""

import unicodedata


def normalise(text):
    text = unicodedata.normalize("NFKC", text or "").casefold()
    return " ".join(text.split()).strip(" .")


def grade(sample, item):
    return 1.0 if normalise(sample["extracted_output"]) == normalise(item["target"]) else 0.0
