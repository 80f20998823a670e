"""Answers are those of transformers' own greedy `generate`, one prompt at a time, on real questions and passages."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipelines import params
from pipelines.answering.prompts import Questions, demonstrations, question_prompt
from pipelines.lm.language_model import Prompt
from pipelines.replug import ensemble_answers

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
    """A question, its passages, and its demonstrations (question, answer, passage), of other relations."""
    pages: dict[str, list[str]] = {}
    for passage in passages:
        pages.setdefault(passage.title, []).append(passage.text)
    rows = [row for row in popqa if row["s_wiki_title"] in pages]
    columns = {name: [row[name] for row in rows] for name in ("id", "prop", "question", "possible_answers")}
    questions = Questions(columns["id"], np.array(columns["prop"]), columns["question"], columns["possible_answers"])
    positions = [columns["prop"].index(relation) for relation in ("occupation", "author", "capital")]

    def shown(position: int) -> tuple[str, str, str]:
        row = rows[position]
        return row["question"], row["obj"], pages[row["s_wiki_title"]][0][:200]

    drawn = demonstrations(0, "popqa", questions, positions, SHOTS)
    return [
        (rows[i]["question"], pages[rows[i]["s_wiki_title"]], [shown(shot) for shot in shots])
        for i, shots in zip(positions, drawn, strict=True)
    ]


@pytest.fixture(scope="module")
def prompts(asked) -> list[Prompt]:
    """Prompts of very different lengths: without and with a passage, without and with demonstrations."""
    result = []
    for question, passages, shots in asked:
        result += [
            question_prompt(question, None, []),
            question_prompt(question, passages[0], []),
            question_prompt(question, None, [(text, answer, None) for text, answer, _ in shots]),
        ]
    return [*result, *(question_prompt(question, passages[0], shots) for question, passages, shots in asked[:2])]


def tokens(tokenizer, prompt: Prompt) -> list[int]:
    return tokenizer(prompt.document + prompt.context)["input_ids"]


@pytest.fixture(scope="module")
def expected(plain, prompts) -> list[tuple[str, float, int]]:
    """Each prompt's text, the mean log-probability of its tokens, and how many tokens the prompt has."""
    model, tokenizer = plain
    result = []
    for prompt in prompts:
        ids = torch.tensor([tokens(tokenizer, prompt)])
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        new = made.sequences[0, ids.shape[1] :]
        said = new != tokenizer.eos_token_id  # the end token is no part of the text
        log_probs = torch.log_softmax(torch.cat(made.logits), dim=-1).gather(1, new[:, None])[said]
        mean = log_probs.mean().item() if len(log_probs) else -np.inf
        result.append((tokenizer.decode(new[said]), mean, ids.shape[1]))
    return result


def check(generations, expected) -> None:
    texts, log_probs, lengths = zip(*expected, strict=True)
    assert len(set(texts)) > len(texts) / 2
    assert [generation.text for generation in generations] == list(texts)
    np.testing.assert_allclose([generation.mean_log_prob for generation in generations], log_probs, atol=1e-4)
    assert [generation.prompt_tokens for generation in generations] == list(lengths)


def test_texts_are_those_of_generate_whatever_prompts_are_read_together(smollm, prompts, expected, monkeypatch):
    monkeypatch.setattr(smollm, "batch_tokens", 4096)
    lengths = [length for _, _, length in expected]
    assert max(lengths) > 10 * min(lengths)
    check(smollm.generate(prompts, NEW_TOKENS, NEVER), expected)


def test_answers_after_demonstrations_are_the_line_that_generate_begins(smollm, prompts, expected):
    chosen = [i for i, prompt in enumerate(prompts) if prompt.context.count("Q:") > 1]
    assert len(chosen) == 5
    generations = smollm.generate([prompts[i] for i in chosen], NEW_TOKENS)
    lines = [expected[i][0].strip().split("\n")[0] for i in chosen]
    assert [generation.text.strip() for generation in generations] == lines
    assert all(lines)
    assert any("\n" in expected[i][0] for i in chosen)


@pytest.mark.parametrize("mixture", ["token_mixture", "sequence_mixture"])
def test_the_mixture_of_one_document_is_generate_with_that_document(smollm, prompts, expected, mixture):
    """Also where a second place has no document, and where the two documents are the same."""
    of_document, other = [1, 4], [0, 3]
    sequence = mixture == "sequence_mixture"
    for second, log_weights in ((None, [0.0]), (other, [0.0, -np.inf]), (of_document, np.log([0.25, 0.75]))):
        places = np.stack([of_document] if second is None else [of_document, second], axis=1)
        generations = smollm.generate_mixture(
            [prompts[i] for i in places.ravel()],
            np.tile(log_weights, (len(places), 1)),
            NEW_TOKENS,
            NEVER,
            sequence_mixture=sequence,
        )
        texts, log_probs, _ = zip(*(expected[i] for i in of_document), strict=True)
        assert [generation.text for generation in generations] == list(texts)
        np.testing.assert_allclose([generation.mean_log_prob for generation in generations], log_probs, atol=1e-4)
        assert any(texts)


def test_replugs_answer_from_two_passages_is_the_equations(smollm, plain, asked):
    """log sum_d lambda_d p(y_t | d, x, y_<t) token by token, with a whole forward pass for each (REPLUG §3.2)."""
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
    (generation,) = ensemble_answers.generate(smollm, prompts, similarities, 5, replug)
    line = tokenizer.decode(text).strip().split("\n")[0]
    assert generation.text.strip() == line != ""
    (whole,) = smollm.generate_mixture(prompts, np.log(lambdas.numpy())[None], 5, NEVER)
    assert whole.text == tokenizer.decode(text)
    assert whole.mean_log_prob == pytest.approx(np.mean(log_probs), abs=1e-4)
