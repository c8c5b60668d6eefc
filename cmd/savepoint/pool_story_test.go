package main

import (
	"context"
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
)

// poolCommands are those of the stories about the pool:
//
//	pool SIZE                 set pool.size
//	crash-making COMMAND...   as crash, once a sandbox is being made
//	crash-reset COMMAND...    as crash, once a sandbox is being reset
var poolCommands = map[string]func(*testscript.TestScript, bool, []string){
	"pool": func(ts *testscript.TestScript, _ bool, args []string) {
		c := of(ts)
		c.config.Pool.Size = number(ts, args)
		ts.Check(configs.WriteWithSecrets(c.file, c.config))
	},
	"crash-making": func(ts *testscript.TestScript, _ bool, args []string) {
		signalWhen(ts, args, os.Kill, -1, registered(func(sb orchestrator.Sandbox) bool {
			return sb.State == orchestrator.SandboxCreating && sb.Address.IsValid()
		}))
	},
	"crash-reset": func(ts *testscript.TestScript, _ bool, args []string) {
		signalWhen(ts, args, os.Kill, -1, registered(func(sb orchestrator.Sandbox) bool {
			return sb.State == orchestrator.SandboxQuarantined
		}))
	},
}

// registered waits for a sandbox in the journal.
func registered(is func(orchestrator.Sandbox) bool) func(file string) bool {
	return func(file string) bool {
		j, err := journal.OpenReadOnly(file)
		if err != nil {
			return false
		}
		defer j.Close()
		all, err := j.Sandboxes(context.Background())
		if err != nil {
			return false
		}
		for _, sb := range all {
			if is(sb) {
				return true
			}
		}
		return false
	}
}
