"""Language modelling, MMLU and open-domain question answering."""
