"""The scheduling and binding cycles. Read `schedule_one` first."""
