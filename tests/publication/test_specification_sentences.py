# ruff: noqa: E501 - a row of the table below is one line, so that its sentence reads as one
"""One sentence for everything that can be wrong with a specification."""

import datetime
import json

import pytest
import yaml
from tests.publication.test_specification import EXAMPLES, LONG, RECORDS

from subspacedp.errors import SubspaceDPError
from subspacedp.mechanisms import OPTIONS
from subspacedp.publication import SpecificationError, read_specification, specification_schema
from subspacedp.publication.faults import nearest, shown
from subspacedp.publication.fields import places
from subspacedp.publication.reading import load_yaml

NAMES = ", ".join(f"`{name}`" for name in ("auto", *OPTIONS))


@pytest.fixture
def sentence(read):
    def told(text):
        with pytest.raises(SpecificationError) as caught:
            read(text)
        return str(caught.value)

    return told


# (example, what stands there, what stands there instead, the whole sentence)
WRONG = [
    # keys
    ("records", "labels: [F", "lables: [F", "`axes.sex.lables` (line 4) is not a known key; did you mean `labels`?"),
    ("records", "column: SEX, labels", "kolumn: SEX, lables", "`axes.sex.kolumn` (line 4) is not a known key; did you mean `column`? (and 1 more problem)"),
    ("records", "exactly: false", "quickly: false", "`privacy.quickly` (line 10) is not a known key; known here are `epsilon`, `delta`, `rho`, `mu`, `neighbours`, `exactly`."),
    ("records", "mechanism: auto", "epsilon: 1", "`epsilon` (line 11) is not a known key here; did you mean `privacy.epsilon`?"),
    ("records", "exactly: false", "hold: []", "`privacy.hold` (line 10) is not a known key here; it belongs at the top of the file."),
    ("long", "privacy:", "priv:", "`priv` (line 3) is not a known key; did you mean `privacy`?"),
    ("long", "privacy: {mu: 1}", "", "`privacy` (line 1) is missing."),
    ("records", "account: census-2010", "", "`budget.account` (line 21) is missing."),
    ("long", "privacy: {mu: 1}", "privacy: {mu: 1}\nprivacy: {mu: 2}", "`privacy` (line 3) is given twice, again in line 4."),
    ("long", "privacy: {mu: 1}", "privacy: {mu: 1}\n3: x", "`3` (line 4) must be text; put `3` in quotes."),
    ("long", "axes: {county:", "axes: {2010:", "`axes.2010` (line 2) must be text; put `2010` in quotes."),
    ("long", "axes: {county:", "axes: {no:", "`axes.no` (line 2) is a key that YAML reads as true or false; put it in quotes."),
    ("long", "axes: {county:", "axes: {010:", "`axes.010` (line 2) is a key that YAML reads as a number or a date; put it in quotes."),
    ("long", "axes: {county:", "axes: {1.5:", '`axes."1.5"` (line 2) is a key that YAML reads as a number; put it in quotes.'),
    ("long", "axes: {county:", "axes: {~:", "`axes.~` (line 2) is a key that YAML reads as nothing; put it in quotes."),
    ("long", "axes: {county:", 'axes: {"":', '`axes.""` (line 2) must not be empty.'),
    ("long", "axes: {county:", "axes: {[a]:", "`axes` (line 2) has a key (line 2) that is not a plain word."),
    ("long", "axes: {county:", 'axes: {"a\\nb": 3, county:', "`axes.a\\nb` (line 2) must be keys with values; got 3."),
    # kinds
    ("records", "records: 3", "records: three", "`data.records` (line 1) must be a whole number; got 'three'."),
    ("records", "records: 3", "records: 0", "`data.records` (line 1) must be at least 1; got 0."),
    ("records", "records: 3", "records: 2147483648", "`data.records` (line 1) must be below 2.14748e+09; got 2147483648."),
    ("records", "records: 3", "records: true", "`data.records` (line 1) must be a whole number; got true."),
    ("records", "column: SEX", "column: 2010", "`axes.sex.column` (line 4) must be text; put `2010` in quotes."),
    ("records", "column: SEX", "column: yes", "`axes.sex.column` (line 4) must be text; put `yes` in quotes."),
    ("records", "column: SEX", "column: [SEX]", "`axes.sex.column` (line 4) must be text; got a list."),
    ("records", "column: SEX", "column: ''", "`axes.sex.column` (line 4) must not be empty."),
    ("records", "column: SEX", "column:", "`axes.sex.column` (line 4) is empty; give it a value or leave it out."),
    ("records", "exactly: false", "exactly: maybe", "`privacy.exactly` (line 10) must be true or false; got 'maybe'."),
    ("records", "epsilon: 0.192", "epsilon: '1'", "`privacy.epsilon` (line 10) must be a number, or `least`; got '1'."),
    ("records", "hold: [[state], [county, sex], []]", "hold: [state]", "`hold` item 1 (line 9) must be a list, in brackets; got 'state'."),
    ("long", "privacy: {mu: 1}", "privacy: {mu: .nan}", "`privacy.mu` (line 3) is no finite number; text needs quotes: '.nan'."),
    ("records", "[county, sex]", "[county, 7]", "`hold` item 2, item 2 (line 9) must be text; put `7` in quotes."),
    ("records", "sex: {column: SEX, labels: [F, M]}", "sex: [F, M]", "`axes.sex` (line 4) must be keys with values; got a list."),
    ("long", "axes: {county: {labels: [1, 2, 3]}}", "axes: [county]", "`axes` (line 2) must be keys with values; got a list."),
    ("long", "axes: {county: {labels: [1, 2, 3]}}", "axes: {}", "`axes` (line 2) must not be empty."),
    ("long", "axes: {county: {labels: [1, 2, 3]}}", "axes:", "`axes` (line 2) is empty; give it a value or leave it out."),
    ("records", "mechanism: auto", "mechanism: protected", f"`mechanism` (line 11) must be one of {NAMES}; got 'protected'; did you mean `projected`?"),
    ("records", "replace-one", "remove-all", "`privacy.neighbours` (line 10) must be one of `replace-one`, `add-remove-one`, `add-remove`; got 'remove-all'."),
    ("records", "decimals: 0", "decimals: 13", "`publish.decimals` (line 13) must be at most 12; got 13."),
    ("records", "decimals: 0", "decimals: 1.5", "`publish.decimals` (line 13) must be a whole number; got 1.5."),
    # YAML
    ("records", "[F, M]", "[no, M]", "`axes.sex.labels` item 1 (line 4) is not a label to YAML; put `no` in quotes."),
    ("records", "[F, M]", "[F, 1.0]", "`axes.sex.labels` item 2 (line 4) is not a label to YAML; put `1.0` in quotes."),
    ("records", "[F, M]", "[F, null]", "`axes.sex.labels` item 2 (line 4) is empty; put `null` in quotes."),
    ("records", "[F, M]", "[007, M]", "`axes.sex.labels` item 1 (line 4) is a number or a date to YAML; put `007` in quotes."),
    ("records", "[F, M]", "[2020-01-01, M]", "`axes.sex.labels` item 1 (line 4) is a number or a date to YAML; put `2020-01-01` in quotes."),
    ("records", "[F, M]", "[F, [M]]", "`axes.sex.labels` item 2 (line 4) must be text or a whole number of 64 bits; got a list."),
    ("records", "[F, M]", "[1, 9223372036854775808]", "`axes.sex.labels` item 2 (line 4) must be text or a whole number of 64 bits; got 9223372036854775808."),
    ("records", "[F, M]", "&labels [F, M]", "`axes.sex.labels` (line 4) uses `&` or `*`, which a specification does not know; write it out."),
    ("records", "[F, M]", "!!set {F, M}", "`axes.sex.labels` (line 4) has a YAML tag; write the value without `!`."),
    ("records", "[F, M]", "[!!int 3, M]", "`axes.sex.labels` item 1 (line 4) has a YAML tag; write the value without `!`."),
    ("records", "0.192", "0.19200000000000000001", "`privacy.epsilon` (line 10) has more digits than a number can keep; write at most 15, not 0.19200000000000000001."),
    ("records", "mechanism: auto", "mechanism auto", "The specification is not valid YAML at line 12, column 1: could not find expected ':'."),
    ("long", "privacy: {mu: 1}", "privacy: {mu: 1}\n---\na: 1", "The specification (line 1) must be one YAML document; remove the line `---`."),
    ("long", "[1, 2, 3]", "[" * 30 + "]" * 30, "`axes.county.labels` (line 2) is nested too deeply."),
    ("long", "county:", "coun\x07ty:", "The specification has a character that YAML does not allow; save it as plain text."),
    # data
    ("long", "{counts: {source: counties.csv, value: population}}", "{unit: row}", "`data` (line 1) needs `source` and `unit`, or `counts`."),
    ("long", "{counts: {source: counties.csv, value: population}}", "{source: a.csv}", "`data` (line 1) needs `unit`: a column that names the person, or `row`."),
    ("long", "{counts:", "{unit: row, counts:", "`data.unit` (line 1) is for records and cannot stand beside `counts`."),
    ("several", "unit: row", "unit: row, records: 2", "`data.records` (line 1) must be 1 with `unit: row`, where every row is another person."),
    ("several", "unit: row", "unit: row, key: k", "`data.key` (line 1) needs a column as `unit`."),
    ("records", "per_cell: 2", "per_cell: 4", "`data.per_cell` (line 1) must be at most `records`; got 4 > 3."),
    ("several", "office@host", "office:secret@host", "`data.source` (line 1) has a password in it; leave it to the environment of the database."),
    ("several", "host/db", "host/db?password=secret", "`data.source` (line 1) has a password in it; leave it to the environment of the database."),
    ("several", "host/db", "host/db?p%61ssword=secret", "`data.source` (line 1) has a password in it; leave it to the environment of the database."),
    ("several", "host/db", "host/db?%2570wd=secret", "`data.source` (line 1) has a password in it; leave it to the environment of the database."),
    ("records", "ledger: budget.db", "ledger: 'postgresql://me:secret@host/db'", "`budget.ledger` (line 21) has a password in it; leave it to the environment of the database."),
    ("records", "ledger: budget.db", "ledger: 'postgresql://me%3Asecret@host/db'", "`budget.ledger` (line 21) has a password in it; leave it to the environment of the database."),
    ("records", "ledger: budget.db", "ledger: 'postgresql://host/db?p%61ssword=secret'", "`budget.ledger` (line 21) has a password in it; leave it to the environment of the database."),
    ("records", "ledger: budget.db", "ledger: 'postgresql://me:se cret@host/db'", "`budget.ledger` (line 21) has a password in it; leave it to the environment of the database."),
    ("long", "counties.csv", "counties.duckdb", "`data.counts.source` (line 1) needs `table` beside it for a database."),
    ("long", "counties.csv", "'s3://bucket/a.csv'", "`data.counts.source` (line 1) is an address of no known kind; known are paths, postgresql:// and spark:."),
    ("several", "table: persons, ", "", "`data.source` (line 1) needs `table` beside it for a database."),
    ("long", ", value: population", "", "`data.counts` (line 1) needs `value`, the column with the counts."),
    ("wide", "table: counties", "value: population", "`data.counts.value` (line 2) cannot stand beside the columns of axis `race`."),
    ("several", "sex: {labels: [F, M]}", "sex: {columns: {F: f, M: m}}", "`axes.sex.columns` (line 4) is for a wide table of counts; give `data.counts`."),
    ("wide", "{labels: [Kent, Cook], levels: {state: {DE: [Kent], IL: [Cook]}}}", "{columns: {state: a}}", "`axes.race.columns` (line 6) can be given for one axis only; `county` has it (and 1 more problem)."),
    ("wide", "pop_nh_white", "pop_hispanic", "`axes.race.columns` (line 6) has the column `pop_hispanic` twice."),
    ("records", "column: SEX", "column: person_id", "`axes.sex` (line 4) cannot be the column `person_id` that names the person."),
    # axes
    ("records", "labels: [F, M]", "", "`axes.sex` (line 4) needs `labels`, `bins`, `by` or `columns`."),
    ("records", "labels: [F, M]", "labels: [F, M], bins: [1, 2]", "`axes.sex.bins` (line 4) cannot stand beside `labels`."),
    ("wide", "race: {", "race: {column: x, ", "`axes.race.column` (line 6) cannot stand beside `columns`."),
    ("wide", "{hispanic: pop_hispanic, white: pop_nh_white}", "{}", "`axes.race.columns` (line 6) must not be empty."),
    ("records", "[F, M]", "{F: 1}", "`axes.sex.labels.F` (line 4) must be text; put `1` in quotes."),
    ("records", "[F, M]", "{F: Female, 1: Male}", "`axes.sex.labels` (line 4) must be all text or all whole numbers; put the numbers in quotes."),
    ("records", "[F, M]", "3", "`axes.sex.labels` (line 4) must be a list of labels, the path of a code list, or `from-data`."),
    ("dated", "first: 2023-07, last: 2024-06, ", "", "`axes.visited.by` (line 4) needs `first` and `last`, the public range of the months."),
    ("dated", "first: 2023-07", "first: 2023-13", "`axes.visited.first` (line 4) cannot be used: A month is written as 2015-01; got '2023-13'."),
    ("dated", "last: 2024-06", "last: 2023-06", "`axes.visited.first` (line 4) cannot be used: The first month must be before the last, and there may be 100000 between."),
    ("dated", "[quarter, year]", "[year, quarter]", "`axes.visited.levels` (line 4) must have the finer period first, and each once."),
    ("dated", "[quarter, year]", "[decade]", "`axes.visited.levels` (line 4) must be coarser periods: quarter, year with `by: month`."),
    ("dated", "by: month", "by: weekday", "`axes.visited.first` (line 4) is for `by: year`, `quarter` or `month`."),
    ("dated", "by: month", "by: minute", "`axes.visited.by` (line 4) must be one of `year`, `quarter`, `month`, `weekday`, `hour`; got 'minute'."),
    ("dated", '"1900-01-01"', '"1900-02-30"', "`axes.born.bins` (line 6) must be all numbers, or all days in quotes such as '2024-12-31'."),
    ("dated", '"1900-01-01"', '"1950-01-01"', "`axes.born.bins` (line 6) must increase."),
    ("dated", '"1900-01-01"', "1900", "`axes.born.bins` (line 6) must be all numbers, or all days in quotes such as '2024-12-31'."),
    ("dated", "missing: unknown", "missing: unknown, other: unknown", "`axes.born.other` (line 6) must be another label than `missing`."),
    ("dated", "missing: unknown", "names: name", "`axes.born.names` (line 6) needs a code list as `labels`, of which it is a column."),
    ("dated", "missing: 0", "missing: 10", "`sums.cost.missing` (line 9) must be from `lower` to `upper`."),
    ("dated", 'decimal: ","', "decimal: ';'", "`data.decimal` (line 1) must be one of `.`, `,`; got ';'."),
    ("several", "from-data", "from-data, other: rest", "`axes.occupation.other` (line 5) cannot stand beside `labels: from-data`, which takes all there are."),
    ("wide", "race: {", "race: {missing: x, ", "`axes.race.missing` (line 6) cannot stand beside `columns`."),
    ("ordered", "[1, 2, 3]", "[1, 2, 3], missing: 9", "`axes.county.missing` (line 2) is for rows; `data.counts` has cells in order."),
    ("records", "[F, M]", "[]", "`axes.sex.labels` (line 4) must not be empty."),
    ("records", "[F, M]", "[F, M, F]", "`axes.sex.labels` (line 4) has the label 'F' more than once."),
    ("records", "[F, M]", "[F, 1]", "`axes.sex.labels` (line 4) must be all text or all whole numbers; put the numbers in quotes."),
    ("records", "[F, M]", "codes", "`axes.sex.labels` (line 4) must be a list in brackets, the path of a code list that ends in `.csv` or as spreadsheets do, or `from-data`."),
    ("several", "from-data", "from_data", "`axes.occupation.labels` (line 5) must be a list in brackets, the path of a code list that ends in `.csv` or as spreadsheets do, or `from-data`; did you mean `from-data`?"),
    ("records", "bins: [0, 5, 18, 65]", "bins: [0, 18, 5]", "`axes.age.bins` (line 6) must increase; got 5 after 18."),
    ("records", "bins: [0, 5, 18, 65]", "bins: [0]", "`axes.age.bins` (line 6) needs at least two edges."),
    ("records", "bins: [0, 5, 18, 65]", "bins: [0, 1e16]", "`axes.age.bins` (line 6) must be below 2**53 in size."),
    ("records", "levels: [state, region]", "levels: state", "`axes.county.levels` (line 3) must be a list of columns of the code list, or give every level its groups."),
    ("records", "levels: [state, region]", "levels: {state: {DE: [Kent]}}", "`axes.county.levels` (line 3) must be a list of columns of the code list."),
    ("records", "levels: [state, region]", "levels: [state, state]", "`axes.county.levels` (line 3) has the level `state` more than once."),
    ("records", "labels: [F, M]", "labels: [F, M], levels: [all]", "`axes.sex.levels` (line 4) must give every level its groups, as the labels are listed here."),
    ("several", "from-data", "from-data, levels: [sector]", "`axes.occupation.levels` (line 5) needs labels that are known; `from-data` has none."),
    ("records", "minor: [0-4, 5-17]", "minor: [0-4, 5-71]", "`axes.age.levels.adult.minor` (line 8) names `5-71`, which is not a label here; did you mean `5-17`? (and 1 more problem)"),
    ("records", "major: [18-64,", "major: [0-4, 18-64,", "`axes.age.levels.adult.major` (line 8) has the label '0-4', which `minor` has already."),
    ("records", "[18-64, 65+]", "[18-64]", "`axes.age.levels.adult` (line 8) has no group for the label '65+'."),
    ("wide", "levels: {state: {DE: [Kent], IL: [Cook]}}", "levels: {all: {US: [Kent, Cook]}, state: {DE: [Kent], IL: [Cook]}}", "`axes.county.levels` (line 5) cannot be used, as level `all` does not nest in level `state` on axis `county`: group 'US' lies in more than one group of `state`. List levels from finest to coarsest."),
    ("wide", "{DE: [Kent], IL: [Cook]}", "{1: [Kent], 2: [Kook]}", "`axes.county.levels.state.2` (line 5) names `Kook`, which is not a label here; did you mean `Cook`? (and 1 more problem)"),
    ("records", "sex: {column", "value: {column", "`axes.value` (line 4) may not be named `value`, which is a column of every release (and 2 more problems)."),
    ("records", "[state, region]", "[state, stderr]", "`axes.county.levels` (line 3) may not have a level `stderr`, which is a column of every release."),
    ("records", "[state, region]", "[state, county]", "`axes.county.levels` (line 3) has a level that is named like the axis, `county`."),
    ("records", "adult: {", "region: {", "`axes.age.levels` (line 7) has the level `region`, a name of axis `county`."),
    ("records", "sex: {column", "region: {column", "`axes.region` (line 4) has the name of a level of axis `county` (and 2 more problems)."),
    # margins
    ("records", "[[state], ", "[[stat], ", "`hold` item 1 (line 9) names `stat`, which is not an axis or level here; did you mean `state`?"),
    ("records", "[[state], ", "[[nation], ", "`hold` item 1 (line 9) names `nation`, which is not an axis or level here."),
    ("records", "[county, sex]", "[county, state]", "`hold` item 2 (line 9) names `county` and `state`, which are levels of one axis, `county`."),
    ("records", "[county, sex]", "[sex, sex]", "`hold` item 2 (line 9) names `sex` twice."),
    ("records", "[county, sex]", "[age, county, sex]", "`hold` item 2 (line 9) holds every cell, so that nothing is left to protect."),
    ("records", "[[state, sex]]", "[[state, sox]]", "`publish.margins` item 1 (line 14) names `sox`, which is not an axis or level here; did you mean `sex`?"),
    ("several", "hold: [[]]", "hold: [[state]]", "`tables.by_sex.hold` item 1 (line 12) names `state`, which is not an axis or level here."),
    ("several", "margins: [[state]]", "margins: [[occupation]]", "`tables.by_county.publish.margins` item 1 (line 9) names `occupation`, which is not an axis or level here."),
    # privacy
    ("long", "{mu: 1}", "{neighbours: add-remove}", "`privacy` (line 3) needs a budget: `epsilon`, `epsilon` and `delta`, `rho`, or `mu`."),
    ("long", "{mu: 1}", "{mu: 1, rho: 1}", "`privacy.mu` (line 3) cannot stand beside `rho`; a budget is one of the two."),
    ("long", "{mu: 1}", "{mu: 1, delta: 0.1}", "`privacy.delta` (line 3) needs `epsilon` beside it."),
    ("records", "1e-6", "1", "`privacy.delta` (line 10) must be below 1; got 1."),
    ("records", "1e-6", "0", "`privacy.delta` (line 10) must be above 0; got 0."),
    ("records", "0.192", "-0.192", "`privacy.epsilon` (line 10) must be above 0; got -0.192."),
    ("records", "  county", "\tcounty", "The specification is not valid YAML at line 3, column 1: a tab; YAML is indented with spaces."),
    ("records", "0.192", ".inf", "`privacy.epsilon` (line 10) is no finite number; text needs quotes: '.inf'."),
    ("records", "exactly: false", "exactly: true", "`privacy.exactly` (line 10) cannot be true with `unit: person_id` and several `records`: those who have fewer stay as they are; leave it out."),
    ("records", "replace-one, exactly", "add-remove, exactly", "`privacy.exactly` (line 10) is for `neighbours: replace-one`."),
    ("several", "epsilon: 1,", "epsilon: 5.0e-324,", "`privacy` (line 6) cannot be used, as the share of the budget is too small for a float64."),
    # what noise is designed for beside the cells, and what earlier versions had
    ("levels", "mechanism: marginals", "mechanism: hierarchical", "`mechanism` (line 6) may no longer be `hierarchical`; write `mechanism: marginals` (or leave it out), and under `publish: margins` the tables of the levels that count, such as [state, sex]."),
    ("levels", "mechanism: marginals", "levels: [county, state]", "`levels` (line 6) is no longer a key here; write `mechanism: marginals` (or leave it out), and under `publish: margins` the tables of the levels that count, such as [state, sex]."),
    ("levels", "mechanism: marginals", "importance: {state: 2}", "`importance` (line 6) is now `weights` under `publish`, one number a table; write `mechanism: marginals` (or leave it out), and under `publish: margins` the tables of the levels that count, such as [state, sex]."),
    ("levels", "mechanism: marginals", "mechanism: projected", "`publish.weights` (line 7) is for `mechanism: marginals` or `auto`."),
    ("levels", "weights: [1, 2.5, 4]", "weights: [1, 2]", "`publish.weights` (line 7) must be 3 numbers, one for the cells and one for each of the margins; got 2."),
    ("levels", "weights: [1, 2.5, 4]", "weights: [1, 0, 1]", "`publish.weights` item 2 (line 7) must be at least 1e-12; got 0."),
    ("levels", "weights: [1, 2.5, 4]", "weights: [1, .inf, 1]", "`publish.weights` item 2 (line 7) is no finite number; text needs quotes: '.inf'."),
    ("levels", "weights: [1, 2.5, 4]", "weights: [1, 2.5, 4], cells: at most 5 %", "`publish.weights` (line 7) cannot stand beside a limit for the cells; leave one of them out."),
    ("levels", "weights: [1, 2.5, 4]", "cells: at most +0 %", "`publish.cells` (line 7) must allow more than 0 %; got 'at most +0 %'."),
    ("levels", "weights: [1, 2.5, 4]", "cells: at least 5 %", "`publish.cells` (line 7) must be true, false or a limit such as `at most +5 %`; got 'at least 5 %'."),
    ("levels", "margins: [[state, sex], [state]], weights: [1, 2.5, 4]", "cells: at most 5 %", "`publish.cells` (line 7) needs `margins` beside it, which the noise is designed for too."),
    ("levels", "margins: [[state, sex], [state]], weights: [1, 2.5, 4]", "weights: [1]", "`publish.weights` (line 7) needs `margins` beside it, which the noise is designed for too."),
    ("levels", "IL: [Cook]}}", "IL: [Cook]}, region: {East: [Kent], West: [Sussex, Cook]}}", "`axes.county.levels` (line 3) cannot be used, as level `state` does not nest in level `region` on axis `county`: group 'DE' lies in more than one group of `region`. List levels from finest to coarsest."),
    ("levels", "{state: {DE: [Kent, Sussex], IL: [Cook]}}", "{state: {}}", "`axes.county.levels.state` (line 3) has no group for the label 'Kent'."),
    ("levels", "IL: [Cook]", "IL: [Cook], TX: []", "`axes.county.levels.state.TX` (line 3) must not be empty."),
    # margins without cells
    ("margins", "[[county, sex], [sex, age]]", "[]", "`publish.cells` (line 9) needs `margins` beside it, then all that is published."),
    ("margins", "  margins: [[county, sex], [sex, age]]\n", "", "`publish.cells` (line 9) needs `margins` beside it, then all that is published."),
    ("margins", "weights: [1, 2]", "weights: [1]", "`publish.weights` (line 11) must be 2 numbers, one for each of the margins; got 1."),
    ("margins", "weights: [1, 2]", "weights: [1, 0]", "`publish.weights` item 2 (line 11) must be at least 1e-12; got 0."),
    ("margins", "cells: false", "cells: true", "`publish.weights` (line 11) must be 3 numbers, one for the cells and one for each of the margins; got 2."),
    ("margins", "cells: false", "cells: nothing", "`publish.cells` (line 9) must be true, false or a limit such as `at most +5 %`; got 'nothing'."),
    ("margins", "cells: false", "cells: 5", "`publish.cells` (line 9) must be true, false or a limit such as `at most +5 %`; got 5."),
    ("margins", "[sex, age]]", "[sex, aeg]]", "`publish.margins` item 2 (line 10) names `aeg`, which is not an axis or level here; did you mean `age`?"),
    ("margins", "[sex, age]]", "[sex, county]]", "`publish.margins` item 2 (line 10) is the same margin as item 1."),
    ("margins", "hold: [[state], [sex]]", "hold: [[county, sex], [age, sex]]", "`publish.margins` (line 10) is fixed entirely by what is held, so that nothing is left to protect."),
    ("margins", "margins: [[county, sex], [sex, age]]\n  weights: [1, 2]", "margins: [[state], [sex], []]", "`publish.margins` (line 10) is fixed entirely by what is held, so that nothing is left to protect."),
    ("margins", "  weights: [1, 2]", "  non_negative: true", "`publish.non_negative` (line 11) needs the cells; leave out `cells: false`."),
    ("margins", "privacy: {rho: 0.5}", "privacy: {rho: 0.5}\nmechanism: optimal", "`mechanism` (line 8) must be `auto`, `marginals` with `cells: false`; got `optimal`."),
    ("margins", "privacy: {rho: 0.5}", "privacy: {rho: 0.5}\nsums: {a: {lower: 0, upper: 1, share: 0.1}}", "`sums` (line 8) cannot stand beside `cells: false`; sums need the cells of their table."),
    ("margins", "  age: {bins: [0, 18, 65]}\nhold: [[state], [sex]]", "  age: {bins: [0, 18, 65]}\n  margin: {labels: [a, b]}\nhold: [[state], [sex]]", "`axes.margin` (line 6) may not have the name `margin`, a column of releases of margins."),
    ("several", "publish: {decimals: 0, to: out}", "publish: {cells: false, weights: [1]}", "`publish.weights` (line 7) must stand in each of the `tables`."),
    ("several", "publish: {margins: [[state]]}", "publish: {cells: false, weights: [1]}", "`tables.by_county.publish.cells` (line 9) needs `margins` beside it, then all that is published."),
    ("several", "share: 0.5, publish", "share: 0.5, levels: [county], publish", "`tables.by_county.levels` (line 9) is no longer a key here; write `mechanism: marginals` (or leave it out), and under `publish: margins` the tables of the levels that count, such as [state, sex]."),
    # publishing, tables, sums
    ("records", "mechanism: auto", "mechanism: extended", "`publish.decimals` (line 13) needs `mechanism: projected`; the extended one gives real values (null)."),
    ("several", "share: 0.5, publish", "share: 0.5, mechanism: extended, publish", "`publish.decimals` (line 7) needs `mechanism: projected`; the extended one gives real values (null)."),
    ("several", "mechanism: projected\n    publish: {decimals: null", "mechanism: extended\n    publish: {decimals: 1", "`tables.by_sex.publish.decimals` (line 15) needs `mechanism: projected`; the extended one gives real values (null)."),
    ("several", "publish: {decimals: 0, to: out}", "hold: [[sex]]", "`hold` (line 7) must stand in each of the `tables`."),
    ("several", "decimals: 0, to: out", "margins: [[sex]]", "`publish.margins` (line 7) must stand in each of the `tables`."),
    ("several", "axes: [county, sex]", "axes: [country, sex]", "`tables.by_county.axes` item 1 (line 9) names `country`, which is not an axis here; did you mean `county`?"),
    ("several", "axes: [county, sex]", "axes: [county, county]", "`tables.by_county.axes` item 2 (line 9) names the axis `county` a second time."),
    ("several", "axes: [county, sex]", "axes: []", "`tables.by_county.axes` (line 9) must not be empty."),
    ("several", "by_job:", "by/job:", "`tables.by/job` (line 17) must be a name of letters, digits, `_`, `-` and `.`, as a folder has it."),
    ("several", ", share: 0.25}", "}", "`tables.by_job` (line 17) needs a `share` of the budget."),
    ("several", "share: 0.25}", "share: 0.2500001}", "`tables` (line 8) has shares that add up to 1.0000001, more than 1."),
    ("several", "share: 0.25}", "share: 2}", "`tables.by_job.share` (line 17) must be at most 1; got 2."),
    ("records", "share: 0.3", "share: 1", "`sums` (line 19) has shares that add up to 1, which leaves nothing for the counts."),
    ("records", "lower: 0", "lower: 200000", "`sums.income.lower` (line 20) must be below `upper`; got 200000 >= 200000."),
    ("records", "unit: 100", "unit: 1e-9", "`sums.income.unit` (line 20) must cut the range into 1 to 2**31 units; got 2e+14 of them."),
    ("records", ", share: 0.3", "", "`sums.income.share` (line 20) is missing."),
    ("records", "  income: {", "  a/b: {", "`sums.a/b` (line 20) must be a name of letters, digits, `_`, `-` and `.`."),
    ("long", "privacy:", "sums: {a: {lower: 0, upper: 1, share: 0.1}}\nprivacy:", "`sums` (line 3) needs records; `data.counts` has none."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("example", "old", "new", "told"),
    WRONG,
    ids=[f"{i}-{w[2][:20]!r}" for i, w in enumerate(WRONG)],
)
def test_one_sentence_for_everything_that_is_wrong(example, old, new, told, sentence):
    text = EXAMPLES[example]
    assert text.count(old) >= 1
    assert sentence(text.replace(old, new, 1)) == told


def test_evidence(read):
    with pytest.raises(SubspaceDPError) as caught:
        read(RECORDS.replace("mechanism: auto", "mechanism: x").replace("records: 3", "records: x"))
    assert (caught.value.where, caught.value.line, caught.value.others) == ("data.records", 1, 1)


def test_lines_of_a_long_list(sentence):
    labels = "\n".join(f"      - label {i}" for i in range(50))
    text = LONG.replace(
        "axes: {county: {labels: [1, 2, 3]}}", f"axes:\n  a:\n    labels:\n{labels}"
    )
    assert "item 41 (line 45)" in sentence(text.replace("- label 40", "- yes"))


@pytest.mark.parametrize("key", [None, True, 1.5, ("a", "b")])
def test_keys_of_a_mapping_are_text(key):
    data = yaml.safe_load(LONG)
    data["axes"][key] = data["axes"]["county"]
    with pytest.raises(SpecificationError, match=r"`axes` has the key .*put it in quotes"):
        read_specification(data)


def test_values_of_a_mapping():
    data = yaml.safe_load(LONG)
    data["axes"]["county"]["labels"] = [datetime.date(2020, 1, 31), "x"]
    with pytest.raises(SpecificationError, match="item 1 is not a label to YAML; put `2020-01-31`"):
        read_specification(data)
    data["axes"]["county"]["labels"] = [b"x"]
    with pytest.raises(SpecificationError, match="must be text or a whole number of 64 bits"):
        read_specification(data)
    data = yaml.safe_load(LONG) | {"privacy": {"epsilon": float("nan")}}
    with pytest.raises(SpecificationError, match=r"`privacy.epsilon` must be a finite number; got"):
        read_specification(data)


def test_files_that_are_none(tmp_path, sentence):
    missing = tmp_path / "none.yaml"
    with pytest.raises(SpecificationError, match=r"^There is no specification `.*none.yaml`\.$"):
        read_specification(missing)
    with pytest.raises(SpecificationError, match=r"^The specification `.*` cannot be read\.$"):
        read_specification(tmp_path)
    missing.write_bytes(b"a: \xff")
    with pytest.raises(SpecificationError, match=r"is not text in UTF-8\.$"):
        read_specification(str(missing))
    with pytest.raises(SpecificationError, match="a path or a mapping; got a list"):
        read_specification([])
    assert sentence("") == "The specification is empty."
    assert sentence("# only a comment\n") == "The specification is empty."
    assert sentence("- a\n") == (
        "The specification must be keys with values, such as `data:`; `subspacedp init` proposes one "
        "from data."
    )


# --------------------------------------------------------------------------------- typing errors


KEYS = set(places({"$ref": "#/$defs/Document"}))


def known_keys(path):
    """The keys that may stand at a place."""
    above = [(key[:-1], key[-1]) for key in KEYS if len(key) == len(path) + 1]
    return [n for at, n in above if all(a in ("<name>", b) for a, b in zip(at, path, strict=True))]


def keys_of(data, path=()):
    """Every known key of a document, with its place."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key in known_keys(path):
                yield (*path, key)
            yield from keys_of(value, (*path, key))


def typing_errors(word):
    middle = len(word) // 2
    yield word[:middle] + word[middle] + word[middle:]  # a letter twice
    if len(word) > 3:
        yield word[:middle] + word[middle + 1 :]  # a letter left out
    if word[middle - 1] != word[middle]:
        yield word[: middle - 1] + word[middle] + word[middle - 1] + word[middle + 1 :]
    yield word.upper()


PLACES = {
    (name, path)
    for name, text in EXAMPLES.items()
    for path in keys_of(load_yaml(text).data)
}  # fmt: skip


@pytest.mark.parametrize(("name", "path"), sorted(PLACES), ids=lambda x: ".".join(x))
def test_a_typing_error_is_told_with_the_key_that_was_meant(name, path):
    known = known_keys(path[:-1])
    for wrong in typing_errors(path[-1]):
        if wrong in known:
            continue
        data = load_yaml(EXAMPLES[name]).data
        inner = data
        for key in path[:-1]:
            inner = inner[key]
        inner[wrong] = inner.pop(path[-1])
        with pytest.raises(SpecificationError) as caught:
            read_specification(data)
        dotted = ".".join((*path[:-1], wrong))
        assert str(caught.value).startswith(
            f"`{dotted}` is not a known key; did you mean `{path[-1]}`?"
        )


def test_the_typing_errors_reach_every_key():
    schema = json.loads(specification_schema())
    sections = [schema, *schema["$defs"].values()]
    wanted = {key for section in sections for key in section["properties"]}
    reached = {path[-1] for _, path in PLACES} | {"rho", "mu", "delta", "value"}
    reached |= {"margin", "error", "relative", "at_least"}  # in lists: see test_targets
    reached |= {"inequalities", "at_most", "limit", "part_of"}  # see test_inequalities
    assert {"publication", "creator", "licence", "version", "date", "groupings"} <= reached
    assert wanted == reached


def test_nearest():
    assert nearest("lables", ["levels", "labels"]) == "labels"
    assert nearest("privacy budget", ["privacy"]) is None
    assert nearest("a", ["b"]) is None
    assert nearest("x", []) is None
    assert nearest("non-negative", ["non_negative"]) == "non_negative"


def test_shown_is_short():
    assert shown("x" * 100) == "a text of 100 characters"
    assert shown(10**100) == "a very long number"
    assert shown(object()) == "a object"
    assert shown(None) == "nothing"


@pytest.mark.parametrize(
    "name",
    ["values", "Values.npy", "values.zarr", "values.csv", "certificate.json", "margins",
     "digests.json", "signature.json", "README.txt", "non-negative-biased.csv"],
)  # fmt: skip
def test_a_table_is_not_named_like_a_file_of_a_release(read, sentence, name):
    text = EXAMPLES["several"].replace("by_sex:", f"{name}:")
    assert name in text
    told = sentence(text)
    assert f"may not be named `{name}`, like a file of a release; give it another name." in told
    read(EXAMPLES["several"].replace("by_sex:", "values_by_sex:"))


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ([], "`axes.a.labels` must not be empty."),
        ([1.5], "`axes.a.labels` item 1 is not a label to YAML; put `1.5` in quotes."),
        ({"F": 1}, "`axes.a.labels.F` must be text; put `1` in quotes."),
        ({1.5: "F"}, "`axes.a.labels` has the key 1.5; put it in quotes (and 1 more problem)."),
    ],
)
def test_what_is_wrong_in_a_list_is_told_alone(labels, told):
    data = {
        "data": {"source": "a.csv", "unit": "row"},
        "axes": {"a": {"labels": labels}},
        "privacy": {"epsilon": 1.0},
    }
    with pytest.raises(SpecificationError) as caught:
        read_specification(data)
    assert str(caught.value) == told


def test_an_empty_mapping_is_told_without_the_words_of_a_union():
    with pytest.raises(SpecificationError, match=r"^`axes.a.labels` must not be empty\.$"):
        read_specification(
            {
                "data": {"source": "a.csv", "unit": "row"},
                "axes": {"a": {"labels": {}}},
                "privacy": {"epsilon": 1.0},
            }
        )
