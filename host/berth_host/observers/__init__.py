"""What a host notes of its attempts: their metrics, and their traces if these are on."""
