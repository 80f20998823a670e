"""Prefect drives DVC here, and people drive both through the `longtail` command."""
