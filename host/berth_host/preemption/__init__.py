"""Preemption: which pods must leave which node so that a pod fits there. It evicts no pod (`evictions` does).

`evaluator` is the way in: eligibility -> victims (with `budgets`) -> dry_run -> selection.
"""
