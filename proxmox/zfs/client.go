package zfs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"savepoint/orchestrator"
)

// Exchange carries one request to savepoint-zfs on a node and returns its whole
// answer. ErrUnavailable means that the request provably did not get there; any
// other error leaves that open.
type Exchange func(ctx context.Context, node string, request []byte) ([]byte, error)

// Client is a Node that speaks the protocol of savepoint-zfs.
type Client struct{ exchange Exchange }

// NewClient returns a client of the nodes that exchange reaches.
func NewClient(exchange Exchange) *Client { return &Client{exchange} }

var _ Node = (*Client)(nil)

const greeting = "savepoint-zfs 1"

// order is one request.
type order struct {
	do      string // as the protocol has it
	op      string // for people
	t       Target
	name    orchestrator.SnapshotName
	text    string
	reserve int64
	reads   bool // changes nothing
}

// List implements Node.
func (c *Client) List(ctx context.Context, t Target) (Volume, error) {
	return c.volume(ctx, order{do: "list", op: "list snapshots of", t: t, reads: true})
}

// Claim implements Node.
func (c *Client) Claim(ctx context.Context, t Target) (Volume, error) {
	return c.volume(ctx, order{do: "claim", op: "claim", t: t})
}

// Snapshot implements Node.
func (c *Client) Snapshot(ctx context.Context, t Target, name orchestrator.SnapshotName, text string, reserve int64) (Volume, error) {
	return c.volume(ctx, order{do: "create", op: "create snapshot", t: t, name: name, text: text, reserve: reserve})
}

// Rollback implements Node.
func (c *Client) Rollback(ctx context.Context, t Target, name orchestrator.SnapshotName) (Volume, error) {
	return c.volume(ctx, order{do: "rollback", op: "roll back to", t: t, name: name})
}

// Delete implements Node.
func (c *Client) Delete(ctx context.Context, t Target, name orchestrator.SnapshotName) (Volume, error) {
	return c.volume(ctx, order{do: "delete", op: "delete snapshot", t: t, name: name})
}

// Hello asks a node for the datasets below which savepoint may work there. It
// shows that key, forced command and version are right.
func (c *Client) Hello(ctx context.Context, node string) ([]string, error) {
	rows, err := c.ask(ctx, order{do: "hello", op: "greet", t: Target{Node: node, Dataset: "savepoint-zfs"}, reads: true})
	if err != nil {
		return nil, err
	}
	var prefixes []string
	for _, r := range rows {
		prefixes = append(prefixes, r[0])
	}
	return prefixes, nil
}

func (c *Client) volume(ctx context.Context, o order) (Volume, error) {
	rows, err := c.ask(ctx, o)
	if err != nil {
		return Volume{}, err
	}
	v, err := volumeOf(o.t.Dataset, rows)
	if err != nil {
		return v, o.fail(orchestrator.ErrUnknownOutcome, err.Error(), "check that savepoint-zfs on the node is of this version")
	}
	return v, nil
}

// fail makes the order's error. What only reads has no outcome to be unsure of.
func (o order) fail(class error, cause, mend string) *failure {
	if o.reads && class == orchestrator.ErrUnknownOutcome { //nolint:errorlint // exactly the class
		class = orchestrator.ErrUnavailable
	}
	return &failure{op: o.op, subject: o.t.subject(o.name), class: class, cause: cause, mend: mend}
}

// request is the order on the wire; a line break in a value would be a line of
// its own.
func (o order) request() ([]byte, error) {
	var b strings.Builder
	b.WriteString(greeting + "\n")
	for _, f := range [][2]string{{"do", o.do}, {"dataset", o.t.Dataset}, {"name", string(o.name)}, {"owner", o.t.Owner}, {"text", o.text}, {"reserve", strconv.FormatInt(o.reserve, 10)}} {
		if strings.ContainsFunc(f[1], func(r rune) bool { return r < ' ' || r > '~' }) {
			return nil, o.fail(orchestrator.ErrDenied, fmt.Sprintf("%s %q has other than printable characters", f[0], f[1]), "")
		}
		if f[1] != "" {
			fmt.Fprintf(&b, "%s %s\n", f[0], f[1])
		}
	}
	b.WriteString("go\n")
	return []byte(b.String()), nil
}

// ask has one exchange and returns the rows of its answer.
func (c *Client) ask(ctx context.Context, o order) ([][4]string, error) {
	request, err := o.request()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, as(o.op, o.t.subject(o.name), err, orchestrator.ErrUnavailable)
	}
	answer, err := c.exchange(ctx, o.t.Node, request)
	if err != nil {
		class := classOf(err)
		if o.reads && unknown(err) {
			class = orchestrator.ErrUnavailable
		}
		return nil, as(o.op, o.t.subject(o.name), err, class)
	}
	return o.read(string(answer))
}

// read takes an answer apart.
func (o order) read(answer string) ([][4]string, error) {
	var rows [][4]string
	var text []string
	lines := strings.Split(answer, "\n")
	if lines[0] != greeting {
		return nil, o.fail(orchestrator.ErrUnknownOutcome, fmt.Sprintf("the node answered %.80q", lines[0]), "make savepoint-zfs the key's forced command on the node (see savepoint doctor)")
	}
	for i, line := range lines[1:] {
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "=":
			if f := strings.Split(rest, "\t"); len(f) == 4 {
				rows = append(rows, [4]string(f))
			}
		case "!":
			text = append(text, strings.TrimSpace(rest))
		case "end":
			if len(lines) != i+3 || lines[i+2] != "" { // its line break is the answer's last character
				return nil, o.fail(orchestrator.ErrUnknownOutcome, "the node's answer goes on after its end", "")
			}
			return rows, o.verdict(rest, strings.Join(text, " "))
		}
	}
	return nil, o.fail(orchestrator.ErrUnknownOutcome, "the node's answer was cut off", "")
}

// verdict is the error that the last line of an answer stands for.
func (o order) verdict(end, text string) error {
	switch end {
	case "ok":
		return nil
	case "failed":
		err := said(o.op, o.t, o.name, text)
		if o.reads && unknown(err) {
			return as(o.op, o.t.subject(o.name), err, orchestrator.ErrUnavailable)
		}
		return err
	case "full":
		return &failure{op: o.op, subject: o.t.subject(o.name), cause: text, class: &orchestrator.FullError{Place: o.t.Dataset, Text: text}, mend: "make room on its pool"}
	case "denied":
		return o.fail(orchestrator.ErrDenied, text, "nothing is done to what another savepoint, or somebody else, made")
	case "busy":
		return o.fail(orchestrator.ErrBusy, text, "try again")
	case "refused":
		return o.fail(orchestrator.ErrDenied, text, "see savepoint doctor for what the key may do on the node")
	}
	return o.fail(orchestrator.ErrUnknownOutcome, fmt.Sprintf("the node's answer ends with %.80q", end), "check that savepoint-zfs on the node is of this version")
}

// volumeOf reads the rows of a listing. Other datasets below it are no affair of ours.
func volumeOf(dataset string, rows [][4]string) (Volume, error) {
	v, seen := Volume{Dataset: dataset}, false
	taken := map[string]*Taken{}
	for _, r := range rows {
		rest, mine := strings.CutPrefix(r[0], dataset)
		property, value, source := r[1], r[2], r[3]
		if local := source == "local"; !local && strings.HasPrefix(property, "savepoint:") {
			continue
		}
		var err error
		switch {
		case !mine, strings.HasPrefix(rest, "/"):
			continue
		case rest == "":
			seen = true
			err = v.learn(property, value)
		case rest[0] == '@' || rest[0] == '#':
			name := strings.TrimPrefix(rest, "@")
			if taken[name] == nil {
				taken[name] = &Taken{Name: name}
			}
			err = taken[name].learn(property, value)
		}
		if err != nil {
			return v, fmt.Errorf("%s of %s: %w", property, r[0], err)
		}
	}
	if !seen {
		return v, fmt.Errorf("the node listed nothing of %s", dataset)
	}
	for _, t := range taken {
		v.Taken = append(v.Taken, *t)
	}
	slices.SortFunc(v.Taken, func(a, b Taken) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	return v, nil
}

func (v *Volume) learn(property, value string) (err error) {
	switch property {
	case "savepoint:owner":
		v.Owner = value
	case "available":
		v.Free, err = strconv.ParseInt(value, 10, 64)
	}
	return err
}

func (t *Taken) learn(property, value string) (err error) {
	switch property {
	case "savepoint:owner":
		t.Owner = value
	case "savepoint:text":
		t.Text = value
	case "createtxg":
		t.Sequence, err = strconv.ParseUint(value, 10, 64)
	case "creation":
		var seconds int64
		seconds, err = strconv.ParseInt(value, 10, 64)
		t.Created = time.Unix(seconds, 0)
	}
	return err
}
