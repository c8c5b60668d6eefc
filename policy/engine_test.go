package policy

import "testing"

func newEngine(t testing.TB) *Engine {
	t.Helper()
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestBuiltInRulesLoadAndTheirExamplesHold(t *testing.T) {
	newEngine(t)
}
