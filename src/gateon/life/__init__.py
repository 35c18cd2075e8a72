"""The living model: it learns task by task from any kind of data, and answers in between.

Data flow: `read` gives a `Table`, `understand` says what its columns are, `hold_out` sets a
share of the rows aside, and an encoder turns rows into what a network sees. None of these needs
torch. Then a `Front` makes samples, a `TaskNetwork` learns them in the context of their task, a
`Recogniser` says which task a sample belongs to, and `LivingModel` holds all of it, in versions
that a `Store` keeps.

Imports every room but `report`, `reproduce`, `integrations` and `cli`.
"""
