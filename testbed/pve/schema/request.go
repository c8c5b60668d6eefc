package schema

// Request is one call as a client made it: the path below the API's root, and
// the parameters of query and body with those of the path.
type Request struct {
	Method, Path string
	Agent        string // what the client calls itself
	Params       map[string]any
}
