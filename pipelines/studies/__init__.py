"""What goes beyond both papers, a study a file. Deleting the file deletes the study from every stage.

A study offers some of these functions, and a stage calls the ones that are there (all_studies.py):

TABLES            columns of its tables in data/analyses (evaluation/tables.py)
of_answers        rows of its tables from one language model's answers to a question set (the stage `analyse`)
of_metrics        rows of its tables from figures that other stages left (`analyse`)
RULE_TABLES       schemas of its tables in data/adaptive/popularity
of_rules          rows of these tables, from all thresholds (`tune_thresholds`)
score_more        more to score beside the candidates' pairs (`score_lm`)
of_bits           rows beside the bits per byte of a language model on a corpus (`evaluate_lm`)
of_tokens         a number of each attributed token, by which figures are shown (`attribute`); with COLUMN and EDGES
report_entries    its sections of the report (report/entries.py); a change there makes no other stage run again

A study may be a stage of its own as well, with an entry in dvc.yaml.
"""
