"""One self-contained HTML page of runs, comparisons, living models or reproduced tables.

`kinds` says what directories hold, `runs`, `living` and `tables` what there is to tell of them, as
plain JSON; `findings` puts the answers first, in words; `page` adds styles and script from
`assets/`; `watch` serves it while a run goes on. Imports `runs`, `life`, `reproduce`, `report` and
what they stand on.
"""
