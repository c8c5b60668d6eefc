// Package bench runs experiments, keeps what they measured, and says what it
// means: against the figures savepoint is to reach, against the paper, and
// against an earlier run.
//
// # Overview
//
// An Experiment has a name and a function. It fills a Run with samples (one row
// per measurement: arm, labels, metrics, steps), tables and notes. Interleave is
// for experiments of timed arms: every round runs every arm once, in an order
// drawn from the plan's seed, so that what changes on the machine meanwhile hits
// all arms alike. The Runner keeps a directory per run:
//
//	RUN/run.json            the plan, the machine and the cluster, the experiments of the run
//	RUN/NAME.json           the Result of one experiment, raw samples included
//	RUN/NAME.before.json    the result that was put aside when NAME was made again
//
// Load reads it back as a Report, whose Document is its JSON, and which Markdown, HTML and GoBench write
// down. Targets holds it against the figures to reach, Paper puts the paper's
// figures beside it, Compare holds it against another run, and History keeps one
// line per run for the trend.
//
// The statistics: medians, since times have a long tail; their intervals (95 %)
// are taken from the order statistics, those of ratios and differences of medians are
// bootstrapped with a fixed seed, and of fewer than six values there is a range and no
// interval; shares
// (metrics of 0 and 1) are means with Wilson intervals; two runs are compared by
// Mann-Whitney, corrected by Benjamini-Hochberg over the figures of an experiment.
//
// The overhead of an arm is what its median is above that of the bare command's, with
// the same labels in the same run: the steps beside it are a breakdown and no measure
// of it, since under savepoint the step "execute" holds what the guest does around the
// command.
//
// # Invariants
//
//   - A file is written as a whole or not at all. A run that was cut short goes on with
//     the first experiment that is not finished; one that failed or was skipped is
//     tried again.
//   - Samples are never lost: those of an experiment that failed or was stopped are on
//     disk, marked partial, however often that happens; a process that is killed loses
//     what it measured in a few seconds at most. What Interleave finds there, by arm, labels
//     and round, it does not measure again; experiments that do not use it measure
//     anew, and what they have not come to stays until they are finished.
//   - A run goes on only with the plan, on the machine and with the cluster that it was
//     begun with, versions included, but for savepoint's own: where that differs, a note
//     of the result says so. Runs of different machines or clusters are no
//     trend, and are compared with a warning; so are runs of different versions.
//   - A failed measurement is a sample with an error, counted, never left out.
//     Its times are in no median.
//   - A ratio is of one run: both sides were measured on one machine, interleaved.
//   - What was not measured is called so, and is never a target reached. Neither is
//     what was measured too seldom (five times on each side at least), or failed once,
//     or is a part of what the target is about: that is called undecided, or missed.
//   - What an earlier run measured and the later one did not, or too seldom to tell,
//     though its plan has it, is as bad as a figure that became worse.
//   - A target that is missed is listed with what explains it: what the experiment
//     said with Run.Profile, and the medians of the steps of the samples concerned.
//   - The page asks nothing of the network: styles and plots are in it.
//   - It can be read on a screen of 390 pixels and of 1280, by day and by night: the
//     lab tier looks at it with a browser.
//   - The core knows nothing of savepoint: what experiments act on is given to
//     their constructors by the caller.
//
// # Limits
//
//   - One runner per directory at a time.
//   - Mann-Whitney cannot tell runs of three samples from each other (p is 0.1 at
//     best): what has fewer than four on a side is noise unless it is exact. With five
//     on a side p is 0.008 at best, so one figure of more than six in an experiment
//     cannot be told from chance; it takes more repetitions.
//   - The machine's facts are read from /proc, on Linux.
package bench
