package bench

// What targets and the paper's figures are computed from. An experiment that
// keeps to these names is found; the metrics are described in the text beside.
const (
	// ExpInterception: one sample per command (arm: the class of the corpus;
	// label "corpus"). Metrics: "decision" (s), and "caught" (share) for
	// commands that are to be stopped, "false_denial" (share) for benign ones.
	// Commands of the paper's kind, black-listed strings, have the arm "blacklist".
	ExpInterception = "interception"
	// ExpRollback: arms are boundaries; label "corruption". Metrics: "exact"
	// (share: the tree hash is the one of before), "ready" (s: until the
	// sandbox can be used again).
	ExpRollback = "rollback"
	// ExpOverhead: arms ArmBare …; label "workload" (WorkloadInstall, WorkloadEdit and
	// WorkloadRead among others), label "size" where the workspace's size varies
	// (PaperSize is the paper's). "seconds" and steps. The overhead of an arm is what
	// its median is above that of ArmBare with the same labels.
	ExpOverhead = "overhead"
	// ExpAgentTurn: arms ArmBare, ArmSavepoint (taken ahead) and others; label
	// "think" is the model's time in seconds. "seconds" is one whole turn.
	ExpAgentTurn = "agent-turn"
	// ExpIsolation: one sample per pair. Metrics: "leak" (share), "blocked" …
	ExpIsolation = "isolation"
	// ExpScale: arm "engine" (label "sandboxes"): "tx_per_second",
	// "memory_growth" (ratio: memory after the second half by that after the
	// first), "retained" (bytes: what the second half added, by its transactions),
	// label "gomaxprocs": its processors; arm "journal": "tx_per_second"; arm
	// "commit": "syncs" and "calls" (count: journal syncs and Proxmox calls between
	// a command's end and its answer).
	ExpScale = "scale"
	// ExpCrash: one sample per set of schedules. Metrics: "schedules",
	// "violations" (count); of two crashes "pairs" (count: those that were played)
	// and "pairs_all" (count: those there are), each in one sample or more.
	ExpCrash = "crash"
	// ExpGemini: arms of the baseline. Metrics: "success" (share, judged by the
	// state of the files). The arm without credentials is GeminiBare.
	ExpGemini = "gemini"

	WorkloadInstall = "pip-install"
	WorkloadEdit    = "sed"
	WorkloadRead    = "read-only"
	PaperSize       = "250MB"
	GeminiBare      = "no-credential-headless"
)

// Labels and metrics that targets read.
const (
	LabelWorkload  = "workload"
	LabelSize      = "size"
	LabelThink     = "think"
	LabelSandboxes = "sandboxes"
	LabelProcs     = "gomaxprocs"

	MetricDecision   = "decision"
	MetricCaught     = "caught"
	MetricExact      = "exact"
	MetricTxRate     = "tx_per_second"
	MetricGrowth     = "memory_growth"
	MetricRetained   = "retained"
	MetricSyncs      = "syncs"
	MetricCalls      = "calls"
	MetricViolations = "violations"
	MetricSchedules  = "schedules"
	MetricPairs      = "pairs"
	MetricPairsAll   = "pairs_all"
	MetricSuccess    = "success"
)

// MostRetained is how many bytes of a transaction may stay in memory that is flat:
// less is what the collector and the runtime move about.
const MostRetained = 64

// Targets, by which an experiment explains what it measured for one: Run.Profile.
const (
	TargetDecision  = "policy decision, p99"
	TargetReadOnly  = "read-only command / bare SSH"
	TargetWorkspace = "overhead, workspace boundary / the paper's copy of 250 MB"
	TargetMachine   = "overhead, machine boundary / the paper's copy of 250 MB"
	TargetCommit    = "commit on the critical path"
	TargetTurn      = "overhead of a whole agent turn, 2 s of model time"
	TargetEngine    = "engine, simulated hypervisor, 1,000 sandboxes"
	TargetJournal   = "journal"
	TargetCrash     = "crash schedules explored"
)
