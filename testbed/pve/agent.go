package pve

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// agentCommand is one of the agent's calls that take no parameters.
type agentCommand struct {
	name, method string
	privs        []string // on 9.x, besides VM.GuestAgent.Unrestricted
}

const (
	agentAudit = "VM.GuestAgent.Audit"
	agentFS    = "VM.GuestAgent.FileSystemMgmt"
	agentPower = "VM.PowerMgmt"
	agentAll   = "VM.GuestAgent.Unrestricted"
)

// agentCommands are the calls that are handed to the agent as they are.
var agentCommands = []agentCommand{
	{"fsfreeze-freeze", "POST", []string{agentFS}},
	{"fsfreeze-status", "POST", []string{agentAudit, agentFS}},
	{"fsfreeze-thaw", "POST", []string{agentFS}},
	{"fstrim", "POST", []string{agentFS}},
	{"get-fsinfo", "GET", []string{agentAudit}},
	{"get-host-name", "GET", []string{agentAudit}},
	{"get-memory-block-info", "GET", []string{agentAudit}},
	{"get-memory-blocks", "GET", []string{agentAudit}},
	{"get-osinfo", "GET", []string{agentAudit}},
	{"get-time", "GET", []string{agentAudit}},
	{"get-timezone", "GET", []string{agentAudit}},
	{"get-users", "GET", []string{agentAudit}},
	{"get-vcpus", "GET", []string{agentAudit}},
	{"info", "GET", []string{agentAudit}},
	{"network-get-interfaces", "GET", []string{agentAudit}},
	{"ping", "POST", []string{agentAudit}},
	{"shutdown", "POST", []string{agentPower}},
	{"suspend-disk", "POST", []string{agentPower}},
	{"suspend-hybrid", "POST", []string{agentPower}},
	{"suspend-ram", "POST", []string{agentPower}},
}

// agentNames lists them, as the old form's parameter takes them.
func agentNames() []string {
	names := make([]string, len(agentCommands))
	for i, c := range agentCommands {
		names[i] = c.name
	}
	return names
}

// agentReady refuses unless the VM has an agent that answers.
func (c *call) agentReady() error {
	s, vmid := c.s, c.vmid()
	conf, err := s.conf(vmid)
	if err != nil {
		return err
	}
	if s.vmOpts.agent(conf.main)["enabled"] != "1" {
		return fail("No QEMU guest agent configured")
	}
	if !s.cfg.Machines.Status(vmid).Running {
		return fail("VM %d is not running", vmid)
	}
	if !s.agentAnswers(c.ctx, vmid) {
		return fail("QEMU guest agent is not running")
	}
	return nil
}

// agentAnswers asks a VM's agent for a sign of life.
func (s *Server) agentAnswers(ctx context.Context, vmid int) bool {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AgentTimeout)
	defer cancel()
	_, err := s.cfg.Machines.Agent(ctx, vmid, "guest-ping", nil)
	var refused *AgentError
	return err == nil || errors.As(err, &refused)
}

// agentSlow bounds commands that take long by nature.
const agentSlow = 10 * time.Minute

// ask sends one command to the agent of a VM that was found ready.
func (c *call) ask(command string, args any) (json.RawMessage, error) {
	limit := max(c.s.cfg.AgentTimeout, 10*time.Second)
	if command == "guest-fsfreeze-freeze" || command == "guest-fstrim" {
		limit = agentSlow
	}
	ctx, cancel := context.WithTimeout(c.ctx, limit)
	defer cancel()
	out, err := c.s.cfg.Machines.Agent(ctx, c.vmid(), command, args)
	var refused *AgentError
	if err != nil && !errors.As(err, &refused) {
		return nil, fail("VM %d %s command '%s' failed - got timeout", c.vmid(), c.s.agentWord(), command)
	}
	if refused != nil && beyondLatin1(refused.Desc) {
		return nil, &apiError{code: 596, text: "Broken pipe"}
	}
	return out, err
}

// beyondLatin1 reports whether a text holds letters that break a real node's
// answer: the daemon dies while it writes them.
func beyondLatin1(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r > 0xff })
}

// agentPlain is a call without parameters. An error of the agent is an answer.
func agentPlain(name string) func(*call) (any, error) {
	return func(c *call) (any, error) {
		if err := c.agentReady(); err != nil {
			return nil, err
		}
		out, err := c.ask("guest-"+name, nil)
		var refused *AgentError
		if errors.As(err, &refused) {
			return map[string]any{"result": map[string]any{
				"error": map[string]string{"class": refused.Class, "desc": refused.Desc},
			}}, nil
		}
		if err != nil {
			return nil, err
		}
		return map[string]any{"result": out}, nil
	}
}

// agentOld is the old form, POST …/agent with the command as a parameter.
func agentOld(c *call) (any, error) { return agentPlain(c.p.Str("command"))(c) }

// demand is ask, with an error of the agent as an error.
func (c *call) demand(command string, args any, into any) error {
	if err := c.agentReady(); err != nil {
		return err
	}
	out, err := c.ask(command, args)
	var refused *AgentError
	if errors.As(err, &refused) {
		return fail("Agent error: %s", refused.Desc)
	}
	if err != nil {
		return err
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fail("Agent error: %w", err)
	}
	return nil
}

// agentExec is POST …/agent/exec. The first part is the program's path.
func agentExec(c *call) (any, error) {
	command := c.p.Strings("command")
	if len(command) == 0 {
		return nil, badParam("command", "property is missing and it is not optional")
	}
	args := map[string]any{"path": command[0], "capture-output": true}
	if len(command) > 1 {
		args["arg"] = command[1:]
	}
	if c.p.Has("input-data") {
		args["input-data"] = base64.StdEncoding.EncodeToString([]byte(c.p.Str("input-data")))
	}
	var out struct {
		PID int `json:"pid"`
	}
	if err := c.demand("guest-exec", args, &out); err != nil {
		return nil, err
	}
	return map[string]any{"pid": out.PID}, nil
}

// agentExecStatus is GET …/agent/exec-status.
func agentExecStatus(c *call) (any, error) {
	var out map[string]any
	if err := c.demand("guest-exec-status", map[string]any{"pid": c.p.Int("pid", 0)}, &out); err != nil {
		return nil, err
	}
	for _, k := range []string{"out-data", "err-data"} {
		if text, ok := out[k].(string); ok {
			if b, err := base64.StdEncoding.DecodeString(text); err == nil {
				out[k] = string(b)
			}
		}
	}
	for _, k := range []string{"exited", "out-truncated", "err-truncated"} {
		if b, ok := out[k].(bool); ok {
			out[k] = 0
			if b {
				out[k] = 1
			}
		}
	}
	return out, nil
}

// The most that one file-read returns, and what one command of the agent reads.
const (
	agentFileMax   = 16 << 20
	agentFileChunk = 1 << 20
)

// agentFileRead is GET …/agent/file-read.
func agentFileRead(c *call) (any, error) {
	var handle json.Number
	if err := c.demand("guest-file-open", map[string]any{"path": c.p.Str("file")}, &handle); err != nil {
		return nil, err
	}
	defer func() { _, _ = c.ask("guest-file-close", map[string]any{"handle": handle}) }()
	if at := c.p.Int("offset", 0); at > 0 {
		seek := map[string]any{"handle": handle, "offset": at, "whence": "set"}
		if err := c.demand("guest-file-seek", seek, nil); err != nil {
			return nil, err
		}
	}
	most := c.p.Int("count", agentFileMax)
	var content []byte
	eof := false
	for !eof && len(content) < most {
		var part struct {
			Count int    `json:"count"`
			Data  string `json:"buf-b64"`
			EOF   bool   `json:"eof"`
		}
		read := map[string]any{"handle": handle, "count": min(agentFileChunk, most-len(content))}
		if err := c.demand("guest-file-read", read, &part); err != nil {
			return nil, err
		}
		b, err := base64.StdEncoding.DecodeString(part.Data)
		if err != nil {
			return nil, fail("Agent error: %w", err)
		}
		content = append(content, b...)
		eof = part.EOF || part.Count == 0
	}
	out := map[string]any{"content": string(content)}
	if c.p.Has("decode") && !c.p.Bool("decode") {
		out["content"] = base64.StdEncoding.EncodeToString(content)
	}
	if !eof {
		out["truncated"] = 1
	}
	return out, nil
}

// agentFileWrite is POST …/agent/file-write.
func agentFileWrite(c *call) (any, error) {
	data := c.p.Str("content")
	if !c.p.Has("encode") || c.p.Bool("encode") {
		data = base64.StdEncoding.EncodeToString([]byte(data))
	}
	var handle json.Number
	if err := c.demand("guest-file-open", map[string]any{"path": c.p.Str("file"), "mode": "wb"}, &handle); err != nil {
		return nil, err
	}
	werr := c.demand("guest-file-write", map[string]any{"handle": handle, "buf-b64": data}, nil)
	cerr := c.demand("guest-file-close", map[string]any{"handle": handle}, nil)
	if werr != nil {
		return nil, werr
	}
	return nil, cerr
}

// agentPassword is POST …/agent/set-user-password.
func agentPassword(c *call) (any, error) {
	args := map[string]any{
		"username": c.p.Str("username"), "crypted": c.p.Bool("crypted"),
		"password": base64.StdEncoding.EncodeToString([]byte(c.p.Str("password"))),
	}
	if err := c.demand("guest-set-user-password", args, nil); err != nil {
		return nil, err
	}
	return map[string]any{"result": map[string]any{}}, nil
}
