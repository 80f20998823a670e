"""Answers are those of transformers' own greedy `generate`, one prompt at a time, on real
questions and passages.
"""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipelines.answering.prompts import Questions, demonstrations, question_prompt
from pipelines.lm.language_model import Prompt
from pipelines.params import params
from pipelines.replug import ensemble

NEW_TOKENS, SHOTS = 8, 4
NEVER = "\0"  # a stop string that the model does not say: whole texts are compared


@pytest.fixture(scope="module")
def plain(real_models):
    """transformers' model and tokenizer, opened without any code of the project."""
    folder = real_models / "smollm2-135m"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def asked(popqa, passages) -> list[tuple[str, list[str], list[tuple[str, str, str]]]]:
    """A question, its passages, and its demonstrations (question, answer, passage), of other
    relations.
    """
    pages: dict[str, list[str]] = {}
    for passage in passages:
        pages.setdefault(passage.title, []).append(passage.text)
    rows = [row for row in popqa if row["s_wiki_title"] in pages]
    columns = {
        name: [row[name] for row in rows] for name in ("id", "prop", "question", "possible_answers")
    }
    questions = Questions(
        columns["id"], np.array(columns["prop"]), columns["question"], columns["possible_answers"]
    )
    positions = [
        columns["prop"].index(relation) for relation in ("occupation", "author", "capital")
    ]

    def shown(position: int) -> tuple[str, str, str]:
        row = rows[position]
        return row["question"], row["obj"], pages[row["s_wiki_title"]][0][:200]

    drawn = demonstrations(0, "popqa", questions, positions, SHOTS)
    return [
        (rows[i]["question"], pages[rows[i]["s_wiki_title"]], [shown(shot) for shot in shots])
        for i, shots in zip(positions, drawn, strict=True)
    ]


def tokens(tokenizer, prompt: Prompt) -> list[int]:
    return tokenizer(prompt.document + prompt.context)["input_ids"]


def test_texts_are_those_of_generate(smollm, plain, asked):
    """Prompts of very different lengths: without and with a passage, without and with
    demonstrations.
    """
    (model, tokenizer), prompts = plain, []
    for question, passages, shots in asked:
        prompts += [
            question_prompt(question, text, shown)
            for text in (None, passages[0])
            for shown in ([], shots)
        ]
    texts, log_probs, lengths = [], [], []
    for prompt in prompts:
        ids = torch.tensor([tokens(tokenizer, prompt)])
        how = {
            "max_new_tokens": NEW_TOKENS,
            "do_sample": False,
            "output_logits": True,
            "return_dict_in_generate": True,
        }
        made = model.generate(ids, attention_mask=torch.ones_like(ids), **how)
        new = made.sequences[0, ids.shape[1] :]
        said = new != tokenizer.eos_token_id  # the end token is no part of the text
        own = torch.log_softmax(torch.cat(made.logits), dim=-1).gather(1, new[:, None])[said]
        log_probs.append(own.mean().item() if len(own) else -np.inf)
        texts.append(tokenizer.decode(new[said]))
        lengths.append(ids.shape[1])
    assert max(lengths) > 10 * min(lengths)
    assert len(set(texts)) > len(texts) / 2
    generations = smollm.generate(prompts, NEW_TOKENS, NEVER)
    assert [generation.text for generation in generations] == texts
    np.testing.assert_allclose(
        [generation.mean_log_prob for generation in generations], log_probs, atol=1e-4
    )
    assert [generation.prompt_tokens for generation in generations] == lengths


def test_replugs_answer_from_two_passages_is_the_equations(smollm, plain, asked):
    """log sum_d lambda_d p(y_t | d, x, y_<t) token by token, with a whole forward pass for each
    (REPLUG §3.2).
    """
    model, tokenizer = plain
    question, passages, shots = next(entry for entry in asked if len(entry[1]) > 1)
    shown = [(text, answer, None) for text, answer, _ in shots[:2]]
    prompts = [question_prompt(question, passage[:300], shown) for passage in passages[:2]]
    similarities = np.array([[0.7, 0.4]], np.float32)
    lambdas = torch.softmax(torch.tensor([0.7, 0.4]), dim=0)
    text: list[int] = []
    log_probs = []
    with torch.inference_mode():
        for _ in range(5):
            read = [torch.tensor([tokens(tokenizer, prompt) + text]) for prompt in prompts]
            mixed = sum(
                weight * torch.softmax(model(ids).logits[0, -1], dim=-1)
                for weight, ids in zip(lambdas, read, strict=True)
            )
            text.append(int(mixed.argmax()))
            log_probs.append(float(mixed.max().log()))
    replug = params.Replug(top_k=2, temperature=1.0, mixture="token_mixture", vote=False)
    (generation,) = ensemble.generate(smollm, prompts, similarities, 5, replug)
    line = tokenizer.decode(text).strip().split("\n")[0]
    assert generation.text.strip() == line != ""
    (whole,) = smollm.generate_mixture(prompts, np.log(lambdas.numpy())[None], 5, NEVER)
    assert whole.text == tokenizer.decode(text)
    assert whole.mean_log_prob == pytest.approx(np.mean(log_probs), abs=1e-4)
