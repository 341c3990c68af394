"""Tasks over the file tools. Each writes one or more turns into a Session and returns True, or returns False when it does not fit.

Every answer is a function of the conversation before it: what was asked (the kind of question and the names in it) and what the tools
returned. Nothing in an answer is drawn at random.
"""
from . import documents, listing, numbers, reading, searching, values, writing

TASKS = {
    listing.t_list: 11, listing.t_dirs: 4, listing.t_ext: 4, listing.t_count: 4, listing.t_count_kind: 2.5, listing.t_exists: 6, listing.t_where_file: 2,
    listing.t_listed_followup: 6, reading.t_read: 9, reading.t_first_line: 3, reading.t_first_n: 5, reading.t_last_line: 2,
    reading.t_line_k: 3, reading.t_lines: 2, documents.t_heading: 4, documents.t_headings: 2, documents.t_about: 6,
    documents.t_readme: 5, documents.t_licence: 1.2, values.t_value: 9, values.t_version: 3, reading.t_read_followup: 4, reading.t_two_reads: 3,
    listing.t_two_lists: 2, values.t_compare: 4, searching.t_search: 8, searching.t_files: 3, searching.t_define: 6,
    searching.t_hits: 1.5, searching.t_search_read: 4, numbers.t_sum: 4, numbers.t_extreme: 2.5, numbers.t_column: 2, numbers.t_two_values: 3,
    numbers.t_calc: 6, numbers.t_calc_followup: 3, writing.t_write: 5, writing.t_copy: 1.5,
}
