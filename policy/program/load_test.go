package program

import "testing"

func TestBuiltInTablesLoad(t *testing.T) {
	if _, err := Load(); err != nil {
		t.Fatal(err)
	}
}
