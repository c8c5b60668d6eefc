package world

import (
	"strconv"
	"strings"
	"time"
)

// What a step did besides its exit status.
type ending int

const (
	ends  ending = iota
	kills        // the guest is dead from here on
	cuts         // the connection is lost, the command goes on
)

// step executes one step of a command on a tree: a tiny shell, whose words the
// real policy judges. Who is not root can write in the workspace only. It says
// how long the step takes besides.
//
//	echo TEXT > FILE   cat FILE   rm FILE   sleep SECONDS   true   false
//	mkdir /panic       stands for whatever ends a guest
//	mkdir /cut         stands for whatever loses the connection
func step(t Tree, s string, root bool) (exit int, out string, took time.Duration, how ending) {
	f := strings.Fields(s)
	if len(f) == 0 {
		return 2, "", 0, ends
	}
	may := func(path string) bool {
		return root || strings.HasPrefix(path, workspace)
	}
	switch f[0] {
	case "echo":
		if len(f) == 4 && f[2] == ">" {
			if !may(f[3]) {
				return 1, "", 0, ends
			}
			t[f[3]] = f[1]
			return 0, "", 0, ends
		}
		return 0, strings.Join(f[1:], " ") + "\n", 0, ends
	case "rm":
		if _, ok := t[f[len(f)-1]]; !ok || !may(f[len(f)-1]) {
			return 1, "", 0, ends
		}
		delete(t, f[len(f)-1])
	case "cat":
		text, ok := t[f[1]]
		if !ok {
			return 1, "", 0, ends
		}
		return 0, text, 0, ends
	case "sleep":
		n, _ := strconv.Atoi(f[1])
		return 0, "", time.Duration(n) * time.Second, ends
	case "mkdir":
		switch f[1] {
		case "/panic":
			return 0, "", 0, kills
		case "/cut":
			return 0, "", 0, cuts
		}
	case "true":
	default:
		return 1, "", 0, ends
	}
	return 0, "", 0, ends
}

// steps are the parts of a command.
func steps(command string) []string { return strings.Split(command, " && ") }

// Apply executes a command that was not disturbed, on a copy of the files that
// a checker keeps beside.
func Apply(t Tree, command string, root bool) (exit int) {
	for _, s := range steps(command) {
		if exit, _, _, _ = step(t, s, root); exit != 0 {
			return exit
		}
	}
	return 0
}
