"""Tests of berth-scheduler-plugins, each in process and served."""
