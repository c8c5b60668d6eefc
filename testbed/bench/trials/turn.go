package trials

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/bench"
	"savepoint/testbed/model"
)

// armOnDemand is savepoint with the snapshot taken when the command comes.
const armOnDemand = "savepoint, snapshot on demand"

const labelBoundary = "boundary"

// Turns compares whole agent turns: the model's answer, and its command.
func Turns(g *Rig) bench.Experiment {
	return bench.Experiment{
		Name: bench.ExpAgentTurn, Title: "A whole agent turn",
		Method: `A turn asks a model server for the next action and runs the command that it names, in a loop of the experiment's own. The model is ` + model.Name + `, which is a script with a set thinking time and no language model. The arms: the command bare over SSH; under savepoint with the snapshot taken while the model thinks and used if nothing was written since; under savepoint with the snapshot taken when the command comes. The command edits a file: as the agent inside the workspace boundary, and as root inside the machine boundary. The last turn's snapshot is taken ahead in every arm that does so, so no turn is measured without one. What is spent is deleted in the background where snapshots are taken ahead, as in an agent's session; where they are taken on demand, by the turn that finds several, whose time it then is. The first turn of each session opens connections and is not measured. A quick run has the arms bare and ahead, the cheapest boundary, and 2 s of thinking.`,
		Plots: []bench.Plot{
			{Kind: bench.Bars, Title: "What savepoint adds to a turn with 2 s of thinking", X: labelBoundary, Series: bench.ByArm, Over: bench.ArmBare, Relative: true, Where: map[string]string{bench.LabelThink: "2"}},
			{Kind: bench.Lines, Title: "What it adds, by thinking time (workspace boundary)", X: bench.LabelThink, Series: bench.ByArm, Over: bench.ArmBare, Where: map[string]string{labelBoundary: string(orchestrator.BoundaryWorkspace)}},
		},
		Quick: 30 * time.Second, Full: 25 * time.Minute,
		Run: g.turns,
	}
}

func (g *Rig) turns(ctx context.Context, r *bench.Run) error {
	sb, err := g.ready(ctx, r)
	if err != nil {
		return err
	}
	m, err := startModel()
	if err != nil {
		return err
	}
	defer m.close()
	r.Fact("model", model.Name)
	r.Note("the loop of a turn is the experiment's own: it asks the model server and runs one command; savepoint agent run's loop, with its parsing and its limits, is not in it")
	thinks := []int{0, 2, 8}
	if r.Plan.Quick {
		thinks = []int{2}
	}
	bounds := turnBoundaries(r, sb)
	if len(bounds) == 0 {
		return bench.Skip("sandbox %s has none of the boundaries that the plan names", sb.Name)
	}
	for _, b := range bounds {
		for _, think := range thinks {
			if err := g.turnsOf(ctx, r, m, sb, b, think); err != nil {
				return err
			}
		}
	}
	return nil
}

// turnBoundaries are those whose turns are measured: the cheapest in a quick run,
// and the disk, whose guest is booted for each rollback, only for who asks for it.
func turnBoundaries(r *bench.Run, sb orchestrator.Sandbox) []orchestrator.Boundary {
	bounds := slices.DeleteFunc(covering(sb), func(b orchestrator.Boundary) bool {
		return !r.Wants(string(b)) || b == orchestrator.BoundaryDisk && len(r.Plan.Boundaries) == 0
	})
	if r.Plan.Quick && len(bounds) > 1 {
		bounds = bounds[:1]
	}
	return bounds
}

// turnsOf measures the arms of one boundary and one thinking time, each as a
// session of its own: what is taken ahead in one arm is of no use in another.
func (g *Rig) turnsOf(ctx context.Context, r *bench.Run, m *thinker, sb orchestrator.Sandbox, b orchestrator.Boundary, think int) error {
	as := policy.Agent
	if b != orchestrator.BoundaryWorkspace {
		as = policy.Root
	}
	labels := map[string]string{bench.LabelThink: strconv.Itoa(think), labelBoundary: string(b)}
	// The file is the agent's before root, bare, can make it root's.
	if _, err := g.bare(ctx, sb, "install -o agent -g agent -m 0666 /dev/null /workspace/turns-"+string(as)+".txt", nil); err != nil {
		return err
	}
	n := 0
	edit := func() string { n++; return fmt.Sprintf("echo turn %d >> /workspace/turns-%s.txt", n, as) }
	under := func(e *orchestrator.Engine) action {
		return func(ctx context.Context) (map[string]float64, error) {
			s, err := committed(ctx, e, orchestrator.Spec{Sandbox: sb, Command: edit(), As: as, Boundary: b})
			return s.Steps, err
		}
	}
	bare := func(ctx context.Context) (map[string]float64, error) {
		_, took, err := g.timed(ctx, sb, edit(), nil)
		return map[string]float64{bench.StepExecute: took}, err
	}
	arms := []struct {
		name          string
		run           action
		before, after func(context.Context) error
	}{
		{bench.ArmBare, bare, nil, nil},
		{bench.ArmSavepoint, under(g.Eager), func(ctx context.Context) error { return g.Eager.Ahead(ctx, sb, b) }, g.Eager.Quiet},
		{armOnDemand, under(g.Engine), nil, func(ctx context.Context) error { _, err := g.Engine.Collect(ctx); return err }},
	}
	if r.Plan.Quick { // no figure to reach is about what is taken on demand
		arms = arms[:2]
	}
	// Rounds of a few turns, the arms in an order of their own, so that the
	// machine's moods hit all arms alike.
	rounds := sessions(r.Reps(quickTurns, fullTurns))
	order, rep := r.Rand("order of sessions"), 0
	for round, turns := range rounds {
		for _, i := range order.Perm(len(arms)) {
			a := arms[i]
			r.Progress(round*len(arms), len(rounds)*len(arms), fmt.Sprintf("%s, %s, %d s", a.name, b, think))
			samples, err := session(ctx, m, time.Duration(think)*time.Second, turns, a.run, a.before)
			for k := range samples {
				samples[k].Arm, samples[k].Labels, samples[k].Rep = a.name, labels, rep+k
			}
			r.Add(samples...)
			if a.after != nil {
				if aerr := a.after(context.WithoutCancel(ctx)); err == nil {
					err = aerr
				}
			}
			if err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
		}
		rep += turns
	}
	return nil
}

// quickTurns and fullTurns are how many turns of each arm are measured, in all.
const quickTurns, fullTurns = 5, 24

// sessions divides turns into rounds that differ by one at most: an arm's session
// is as long as a round, at most 6 turns, and there are two rounds as soon as
// there are two turns.
func sessions(turns int) []int {
	n := min(turns, max(2, (turns+5)/6))
	out := make([]int, n)
	for i := range out {
		out[i] = turns / n
		if i < turns%n {
			out[i]++
		}
	}
	return out
}

// action is the command of a turn. It returns how long its steps took, in seconds.
type action func(ctx context.Context) (map[string]float64, error)

// session is a few turns in a row. The first is not measured: it opens connections,
// and nobody waits for its model to think.
func session(ctx context.Context, m *thinker, think time.Duration, turns int, run action, before func(context.Context) error) ([]bench.Sample, error) {
	var out []bench.Sample
	for i := range turns + 1 {
		thinks := think
		if i == 0 {
			thinks = 0
		}
		if i == 0 && before != nil {
			if err := before(ctx); err != nil {
				return out, err
			}
		}
		began := time.Now()
		if err := m.ask(ctx, thinks); err != nil {
			return out, err
		}
		thought := time.Since(began)
		steps, err := run(ctx)
		if err != nil {
			return out, err
		}
		took := time.Since(began)
		if i > 0 {
			steps["model"] = thought.Seconds()
			out = append(out, bench.Sample{Metrics: map[string]float64{bench.MetricSeconds: took.Seconds()}, Steps: steps})
		}
	}
	return slices.Clip(out), nil
}

// thinker is a model server on loopback that thinks as long as it is asked to.
type thinker struct {
	server *model.Server
	http   *http.Server
	url    string
	think  chan time.Duration
}

func startModel() (*thinker, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the stand-in model: %w", err)
	}
	m := &thinker{url: "http://" + l.Addr().String(), think: make(chan time.Duration, 1)}
	m.server = model.New(func(model.Request) model.Turn {
		return model.Turn{Think: <-m.think, Calls: []model.Call{{Name: "run", Args: map[string]any{"command": "edit"}}}}
	})
	m.http = &http.Server{Handler: m.server, ReadHeaderTimeout: 10 * time.Second}
	go m.http.Serve(l) //nolint:errcheck // ends with close
	return m, nil
}

func (m *thinker) close() {
	_ = m.server.Close()
	_ = m.http.Close()
}

// ask waits for the model's next action.
func (m *thinker) ask(ctx context.Context, think time.Duration) error {
	m.think <- think
	body, err := json.Marshal(map[string]any{
		"model": model.Name, "messages": []map[string]string{{"role": "user", "content": "What next?"}},
		"tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "run"}}},
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask the stand-in model: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && (resp.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte(`"tool_calls"`))) {
		err = fmt.Errorf("status %d without a tool call", resp.StatusCode)
	}
	if err != nil {
		return fmt.Errorf("ask the stand-in model: %w", err)
	}
	return nil
}
