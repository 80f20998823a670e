"""The stages that studies add to. A module run_<stage>.py lists the studies and hands them down.

all_tables.py joins the columns of the studies' tables with those of the papers'. Beside the report,
no other room names a study.
"""
