import json

FORMAT = {
    "type": "json_schema",
    "name": "mood",
    "schema": {
        "type": "object",
        "properties": {"mood": {"type": "string", "enum": ["happy", "unhappy"]}},
        "required": ["mood"],
        "additionalProperties": False,
    },
    "strict": True,
}


def grade(sample, item, ctx):
    """1 where the judge hears in the reply the mood that was asked for."""
    reply = ctx.responses_create(
        input=f"Customer review: {sample['output_text']}\n\nIs this customer happy or unhappy?",
        text={"format": FORMAT},
        temperature=0,
        max_output_tokens=20,
    )
    heard = json.loads(reply["output_text"])["mood"]
    return {"scores": {"agrees": float(heard == item["target"])}, "judge": {"heard": heard, "model": reply["model"]}}
