package sim

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"

	"savepoint/testbed/pve"
)

// job is a command started through the guest agent.
type job struct {
	done     chan struct{}
	code     int
	out, err bytes.Buffer
}

type agentFile struct {
	text string
	off  int
	name string // of a file that is being written
}

// agent answers one command of the guest agent, with or without its "guest-".
func (g *guest) agent(command string, args any) (any, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, &pve.AgentError{Class: "GenericError", Desc: err.Error()}
	}
	var a struct {
		Path    string   `json:"path"`
		Mode    string   `json:"mode"`
		Handle  int      `json:"handle"`
		Count   int      `json:"count"`
		Buf     string   `json:"buf-b64"`
		PID     int      `json:"pid"`
		Arg     []string `json:"arg"`
		Input   string   `json:"input-data"`
		Capture any      `json:"capture-output"`
		Time    int64    `json:"time"`
	}
	if args != nil {
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, &pve.AgentError{Class: "GenericError", Desc: "invalid parameters: " + err.Error()}
		}
	}
	switch strings.TrimPrefix(command, "guest-") {
	case "ping", "sync":
		return struct{}{}, nil
	case "info":
		return g.agentInfo(), nil
	case "network-get-interfaces":
		return g.interfaces(), nil
	case "get-host-name":
		g.mu.Lock()
		defer g.mu.Unlock()
		return map[string]string{"host-name": g.host}, nil
	case "get-osinfo":
		return map[string]string{"id": "debian", "name": "Debian GNU/Linux", "version-id": "12", "kernel-release": "6.1.0-sim", "machine": "x86_64"}, nil
	case "get-time":
		return g.now().UnixNano(), nil
	case "fsfreeze-freeze", "fsfreeze-thaw":
		return 1, nil
	case "fsfreeze-status":
		return "thawed", nil
	case "file-open":
		return g.openFile(a.Path, a.Mode)
	case "file-read", "file-write", "file-close", "file-flush":
		return g.fileOp(strings.TrimPrefix(command, "guest-file-"), a.Handle, a.Count, a.Buf)
	case "exec":
		return g.execJob(a.Path, a.Arg, a.Input)
	case "exec-status":
		return g.jobStatus(a.PID)
	}
	return nil, &pve.AgentError{Class: "CommandNotFound", Desc: "The command " + command + " has not been found"}
}

func (g *guest) agentInfo() any {
	type entry struct {
		Name    string `json:"name"`
		Enabled bool   `json:"enabled"`
		Success bool   `json:"success-response"`
	}
	var list []entry
	for _, name := range []string{"ping", "info", "network-get-interfaces", "get-host-name", "get-osinfo", "get-time", "fsfreeze-freeze", "fsfreeze-thaw",
		"fsfreeze-status", "file-open", "file-read", "file-write", "file-close", "file-flush", "exec", "exec-status"} {
		list = append(list, entry{"guest-" + name, true, true})
	}
	return map[string]any{"version": "7.2.0", "supported_commands": list}
}

func (g *guest) interfaces() any {
	type address struct {
		Type   string `json:"ip-address-type"`
		IP     string `json:"ip-address"`
		Prefix int    `json:"prefix"`
	}
	type nic struct {
		Name      string    `json:"name"`
		MAC       string    `json:"hardware-address"`
		Addresses []address `json:"ip-addresses,omitempty"`
	}
	list := []nic{{"lo", "00:00:00:00:00:00", []address{{"ipv4", "127.0.0.1", 8}, {"ipv6", "::1", 128}}}}
	for i, n := range g.machine.NICs {
		card := nic{Name: "eth" + string(rune('0'+i)), MAC: strings.ToLower(n.MAC)}
		if i == 0 && g.machine.Address.IsValid() {
			kind := "ipv4"
			if g.machine.Address.Addr().Is6() {
				kind = "ipv6"
			}
			card.Addresses = []address{{kind, g.machine.Address.Addr().String(), g.machine.Address.Bits()}}
		}
		list = append(list, card)
	}
	return list
}

func agentFault(what string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return &pve.AgentError{Class: "GenericError", Desc: what + ": " + errno(err)}
	}
	return &pve.AgentError{Class: "GenericError", Desc: what + ": " + err.Error()}
}

func (g *guest) openFile(name, mode string) (any, error) {
	f := &agentFile{}
	if strings.HasPrefix(mode, "w") || strings.HasPrefix(mode, "a") {
		if err := g.tree.write(rootUser, name, "", mode[0] == 'a', 0o644, g.now()); err != nil {
			return nil, agentFault("failed to open file '"+name+"' (mode: '"+mode+"')", err)
		}
		f.name = name
	} else {
		text, err := g.tree.read(rootUser, name)
		if err != nil {
			return nil, agentFault("failed to open file '"+name+"' (mode: 'r')", err)
		}
		f.text = text
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next++
	g.files[1000+g.next] = f
	return 1000 + g.next, nil
}

func (g *guest) fileOp(op string, handle, count int, b64 string) (any, error) {
	g.mu.Lock()
	f := g.files[handle]
	if op == "close" {
		delete(g.files, handle)
	}
	g.mu.Unlock()
	if f == nil {
		return nil, &pve.AgentError{Class: "GenericError", Desc: "handle could not be found"}
	}
	switch op {
	case "read":
		if count <= 0 {
			count = 4096
		}
		part := f.text[f.off:min(len(f.text), f.off+count)]
		f.off += len(part)
		return map[string]any{"count": len(part), "buf-b64": base64.StdEncoding.EncodeToString([]byte(part)), "eof": f.off >= len(f.text)}, nil
	case "write":
		data, err := base64.StdEncoding.DecodeString(b64)
		if err == nil && f.name == "" {
			err = errors.New("file is not open for writing")
		}
		if err == nil {
			err = g.tree.write(rootUser, f.name, string(data), true, 0o644, g.now())
		}
		if err != nil {
			return nil, agentFault("failed to write to file", err)
		}
		return map[string]any{"count": len(data), "eof": false}, nil
	}
	return struct{}{}, nil
}

func (g *guest) execJob(name string, args []string, input string) (any, error) {
	stdin, err := base64.StdEncoding.DecodeString(input)
	if err != nil {
		return nil, &pve.AgentError{Class: "GenericError", Desc: "invalid input-data"}
	}
	grp := g.newGroup()
	j := &job{done: make(chan struct{})}
	p := &proc{g: g, grp: grp, who: rootUser, dir: "/", in: bytes.NewReader(stdin), out: &j.out, err: &j.err, env: exportedEnviron(environment(rootUser, nil))}
	if _, code := p.lookup(name); code != 0 {
		grp.end()
		return nil, &pve.AgentError{Class: "GenericError", Desc: "Failed to execute child process \"" + name + "\" (No such file or directory)"}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next++
	id := 2000 + g.next
	g.jobs[id] = j
	g.wg.Go(func() {
		defer grp.end()
		j.code = p.exec(grp.ctx, append([]string{name}, args...))
		close(j.done)
	})
	return map[string]int{"pid": id}, nil
}

func (g *guest) jobStatus(id int) (any, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	j := g.jobs[id]
	if j == nil {
		return nil, &pve.AgentError{Class: "GenericError", Desc: "Invalid parameter 'pid'"}
	}
	select {
	case <-j.done:
	default:
		return map[string]any{"exited": false}, nil
	}
	delete(g.jobs, id)
	status := map[string]any{"exited": true, "exitcode": j.code}
	if j.out.Len() > 0 {
		status["out-data"] = base64.StdEncoding.EncodeToString(j.out.Bytes())
	}
	if j.err.Len() > 0 {
		status["err-data"] = base64.StdEncoding.EncodeToString(j.err.Bytes())
	}
	return status, nil
}
