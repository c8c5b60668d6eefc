package shell

// The kinds of Fact that the shell itself produces. Rules name them.
const (
	FactTooLarge     = "too-large"          // longer than MaxSource
	FactControlBytes = "control-bytes"      // characters that hide or change the text
	FactParse        = "parse-error"        // not bash
	FactDepth        = "depth-limit"        // nested too deep, or too many steps
	FactUnresolved   = "unresolved-command" // the command word is not known
	FactOpaque       = "opaque-eval"        // text that cannot be known is run as code
	FactFetched      = "fetch-execute"      // what comes from the network is run
	FactDecoded      = "decode-execute"     // what is decoded in the line is run
	FactForkBomb     = "fork-bomb"          // a function or loop that multiplies itself
	FactEnvironment  = "environment"        // a variable that programs see is set
)

// Span is a part of the judged text, in bytes.
type Span struct {
	Start int `json:"start"`
	End   int `json:"end"`
}

// Fact is something found while walking a text.
type Fact struct {
	Kind   string
	Target string   // what it is about, readable
	Name   string   // FactEnvironment: the variable
	Value  string   // FactEnvironment: what it is set to; may hold holes
	Span   Span     // where in the judged text
	Via    []string // launchers around it, outermost first
}

// Stream is what is known of the bytes that flow into or out of a command.
type Stream struct {
	Known   bool     // Text is all of it
	Text    string   // may hold holes, as values do
	Inherit bool     // the stream of the whole line, e.g. an empty standard input
	File    string   // it is the content of this file
	Local   bool     // not known, and made of local files alone but for Said
	Said    string   // the known pieces of a stream that is not known as a whole
	Made    bool     // the line itself made the file it comes from
	Fetched bool     // some of it comes from the network
	Decoded bool     // some of it was encoded in the line itself
	Script  bool     // it is code printed by a program known to print code
	Plain   bool     // it is a fact about the machine that tells nothing, e.g. a date
	Either  []Stream // it is one of these, when the branches of the line disagree
	Listing []string // it is a list of paths of this form, e.g. what find prints
}

// Call is one program that would run.
type Call struct {
	Argv  []string // expanded words; Argv[0] is resolved when it has no hole
	Env   []Setting
	Stdin Stream
	Span  Span
}

// Setting is one variable set for a program.
type Setting struct{ Name, Value string }

// Host knows programs. The walker calls it; it may call the walker back.
type Host interface {
	// Run judges one program and says what is known of its standard output.
	Run(w *Walker, sc *Scope, c Call) Stream
	// Write is told of every path a redirection writes to.
	Write(w *Walker, sc *Scope, path string)
	// Read is told of every path a redirection reads from.
	Read(w *Walker, sc *Scope, path string)
	// Report is told of every fact.
	Report(f Fact)
}

// More kinds of Fact of the shell itself.
const (
	FactPartlyKnown = "partly-known"       // code or a number that is only partly known
	FactAssign      = "assignment"         // only the shell's own state changes: nothing to undo
	FactScript      = "script"             // a local file is run as code
	FactConfusable  = "confusable-command" // the command word looks like another
)
