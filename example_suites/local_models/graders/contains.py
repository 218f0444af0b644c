def grade(sample, item):
    """1 where the answer names the target, as a whole word."""
    words = "".join(c if c.isalnum() else " " for c in sample["output_text"].lower()).split()
    return 1.0 if item["target"].lower() in words else 0.0
