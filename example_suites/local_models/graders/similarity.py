import math


def cosine(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(
        math.fsum(x * x for x in a) * math.fsum(y * y for y in b)
    )


def grade(sample, item, ctx):
    """How near the answer is to the reference, and whether it is nearer to it than to the distractor."""
    reply = ctx.embeddings_create(input=[sample["output_text"], item["target"], item["distractor"]])
    answer, reference, distractor = (entry["embedding"] for entry in reply["data"])
    near, far = cosine(answer, reference), cosine(answer, distractor)
    return {
        "scores": {"similarity": near, "nearer": float(near > far)},
        "judge": {"to_reference": round(near, 4), "to_distractor": round(far, 4)},
    }
