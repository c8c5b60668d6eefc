package world

import (
	"maps"
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

// Shell is what a command's shell has of its own, and what it leaves for the
// next one of a session. One that never changed its directory has none.
type Shell struct {
	Dir string            `json:"dir"`
	Env map[string]string `json:"env"`
}

func (s Shell) copy() Shell {
	s.Env = maps.Clone(s.Env)
	return s
}

// step executes one step of a command on a tree: a tiny shell, whose words the
// real policy judges. Who is not root can write in the workspace only. It says
// how long the step takes besides.
//
//	echo TEXT > FILE   echo TEXT >> FILE   cat FILE   rm FILE   sleep SECONDS
//	cd DIR   pwd   export NAME=VALUE   printenv NAME   true   false
//	git …              stands for whatever the policy denies and changes nothing
//	mkdir /panic       stands for whatever ends a guest
//	mkdir /cut         stands for whatever loses the connection
func step(t Tree, sh *Shell, s string, root bool) (exit int, out string, took time.Duration, how ending) {
	f := strings.Fields(s)
	if len(f) == 0 {
		return 2, "", 0, ends
	}
	may := func(path string) bool {
		return root || strings.HasPrefix(path, workspace)
	}
	switch f[0] {
	case "echo":
		if len(f) == 4 && f[2][0] == '>' {
			if !may(f[3]) {
				return 1, "", 0, ends
			}
			if f[2] == ">" {
				t[f[3]] = ""
			}
			t[f[3]] += f[1]
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
	case "cd":
		sh.Dir = f[1]
	case "pwd":
		return 0, sh.Dir + "\n", 0, ends
	case "export":
		if sh.Env == nil {
			sh.Env = map[string]string{}
		}
		name, value, _ := strings.Cut(f[1], "=")
		sh.Env[name] = value
	case "printenv":
		return 0, sh.Env[f[1]] + "\n", 0, ends
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
	case "true", "git":
	default:
		return 1, "", 0, ends
	}
	return 0, "", 0, ends
}

// writes reports whether the step may write to a disk.
func writes(s string) bool {
	return strings.ContainsRune(s, '>') || strings.HasPrefix(s, "rm ") || strings.HasPrefix(s, "mkdir ")
}

// steps are the parts of a command.
func steps(command string) []string { return strings.Split(command, " && ") }

// Apply executes a command that was not disturbed, on copies that a checker
// keeps beside of the files and of the shell.
func Apply(t Tree, sh *Shell, command string, root bool) (exit int) {
	for _, s := range steps(command) {
		if exit, _, _, _ = step(t, sh, s, root); exit != 0 {
			return exit
		}
	}
	return 0
}
