"""The columns of all files of answers, whether this project or another system made them."""

import pyarrow as pa

PREDICTIONS = pa.schema(
    {
        "question_id": pa.string(),
        # without the retriever's name, which the file has
        "method": pa.string(),
        "prediction": pa.string(),
        # matching.substring, the published metric
        "correct": pa.bool_(),
        # matching.word
        "correct_word": pa.bool_(),
        "prompt_hash": pa.string(),
        # of the best document, as are its title and its similarity; null without a retriever
        "doc_id": pa.string(),
        "doc_title": pa.string(),
        "similarity": pa.float32(),
        # whether some passage has an answer as whole words in what the LM saw; null closed-book
        "doc_has_answer": pa.bool_(),
        # the document is of the subject's own page; null if that page is not known
        "doc_is_subject": pa.bool_(),
        # the document is of another page by the same name; null if that is not known
        "doc_is_namesake": pa.bool_(),
        # of all prompts; null if the server's tokens are not known
        "prompt_tokens": pa.int32(),
        # of the generated tokens, white space before the answer included; -inf if there are none
        "mean_log_prob": pa.float32(),
        # prompts that the LM read for this question
        "lm_calls": pa.int32(),
        # generated after all prompts; null if the server's tokens are not known
        "new_tokens": pa.int32(),
        # by the server's prices; 0 for a local LM; null if tokens are not known
        "cost": pa.float64(),
        # written by the LM; null for every method but genread
        "passage": pa.string(),
    }
)
