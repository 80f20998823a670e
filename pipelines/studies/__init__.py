"""What goes beyond both papers, a study a file. A study has some of these functions and tables:

score_more        more to score beside the candidates' pairs (`score_lm`)
figures_of_bits   figures beside the bits per byte of a language model on a corpus (`evaluate_lm`)
number_tokens     a number of each attributed token, by which figures are shown (`attribute`), with
                  COLUMN and EDGES
rows_of_rules     rows of the tables RULE_TABLES in data/adaptive, from all thresholds
                  (`tune_thresholds`)
rows_of_answers   rows of TABLES in data/analyses, from a language model's answers (`analyse`)
rows_of_metrics   rows of TABLES in data/analyses, from other stages' metrics (`analyse`)

pipelines/with_studies/ has a module for each of these stages, which lists its studies. Its
fingerprint follows these studies alone, so a changed study makes no other stage run again. The
sections of the report are in pipelines/report/studies/. To delete a study, delete its files and the
lines that name it. A study may be a stage of its own as well, with an entry in dvc.yaml.
"""
