"""The language model as a black box (REPLUG §3): it scores texts and generates answers.

language_model    the protocol: what a language model can do
open_lm           opens the language model that the params name: a LocalModel or an HttpModel

local             LocalModel: a folder of weights, run by transformers; scoring and greedy decoding
  weights         loads the weights in fp32, bf16 or int8
  forward_passes  reads texts of any lengths, and checks whether a shortcut gives a model's own numbers
  prefixes        keys and values: common beginnings of prompts, read once, and texts that are continued

http_model        HttpModel: a server with OpenAI's completions or chat interface
  http_client     sends requests; every answer is paid for once and kept
  http_choice     a server's answer to one prompt
  http_mixture    REPLUG's mixture, as far as the tokens that a server shows decide it
  http_ledger     kept answers, costs and rate limits

token_prompts     prompts and continuations as token ids, for both
ragged            sequences of unequal length in one array

base_lm           the stage that makes a language model's folder
  train_lm        trains a small one from scratch
  model_files     saves pretrained models, says which files can't be read, and reads the size of a saved model
"""
