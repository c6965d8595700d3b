"""A study: several ways to learn from the same start with the same budget, compared on tasks that are opened once.

    spec         the study's file: arms, seeds, budget, endpoint
    arms         what an arm is played with, and playing it until its budget is spent
    writing      test tasks that a frozen arm's injector writes
    opening      the test tasks: their digest, and who looked at them
    measuring    an arm's weights on the endpoint, and what the arm cost
    results      one JSON file an arm and seed, which is committed
    statistics   intervals that resample seeds and functions, tests by seeds, Holm's correction
    page         curricula/results/README.md, from the committed results alone
    planning     what would be played, and how long it takes
    shuffled     advantages whose rewards are another sibling's: an arm that must not learn

Not here: the command (`cli.study`), making tasks of another mechanism than the warm-up's (`evaluation.making`).
"""
