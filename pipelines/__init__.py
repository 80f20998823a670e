"""The work, in the order data flows; knows nothing of Prefect."""
