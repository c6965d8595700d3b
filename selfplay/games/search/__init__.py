"""The search game: questions from a corpus, answers by searching, truth by a retrieval-augmented check."""
