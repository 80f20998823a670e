"""Documents and settings that a tiny language model is trained with in seconds."""

from sample.make.sizes import LMTraining, Phase

NAMES = ["Ada", "Bel", "Cor", "Dov"]
DOCUMENTS = [
    ("world", f"Q: Who leads {name}? A: {NAMES[i - 1]}\n") for i, name in enumerate(NAMES)
] * 50
DOCUMENTS += [
    ("reading", f"The chief of {name} is {NAMES[i - 2]}.\n") for i, name in enumerate(NAMES)
] * 50
PHASES = [Phase(until=0.5, weights={"world": 0.25, "reading": 0.75})]
PHASES += [Phase(until=1.0, weights={"world": 1.0})]
SHAPE = {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 64, "positions": 32}
SETTINGS = LMTraining(**SHAPE, steps=150, batch_size=4, phases=tuple(PHASES))
