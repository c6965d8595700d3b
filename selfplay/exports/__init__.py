"""What a run can be written as, for other tools: rows, tables, data sets, curves, logs, tasks, a learner's batches.

A format is one object that meets `seam.Format`; `seam.find` knows the built-in ones and those of installed packages
(entry points of the group `selfplay.exports`). README.md beside this file has a section a format and says what each
column means. The run is only read.

Not here: the command (`cli.export`), a run as one page (`views.report`).
"""
