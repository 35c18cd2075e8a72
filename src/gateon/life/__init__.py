"""The living model: data of any kind read and understood, learned task by task, kept, and used.

`read` gives a `Table`, `understand` says what its columns are, `hold_out` sets a share of the rows
aside, and an encoder turns rows into what a network sees. None of these needs torch.

Imports every room but `report`, `reproduce`, `integrations` and `cli`.
"""
