"""Pod groups: their cycle, placements, held nodes, repair and status. Read `schedule_group` first."""
