"""`berth bench simulate`: many pods asked about on many templates, in one question and one by one."""
