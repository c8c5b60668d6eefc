package shell

import "testing"

// The patterns of generators are compiled when their names are asked: here, all
// of them are. None takes just anything.
func TestEveryGeneratorCompiles(t *testing.T) {
	for name, re := range generators {
		t.Run(name, func(t *testing.T) {
			if re().MatchString("-c; reboot") {
				t.Errorf("%q takes any arguments", re())
			}
		})
	}
}
