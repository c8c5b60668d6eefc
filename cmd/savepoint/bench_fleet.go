package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"savepoint/orchestrator"
	"savepoint/testbed/bench/trials"
)

// another is the n-th sandbox of the experiments, from 2 on, made beside the first
// one when it is asked for. A tenant is wanted for it, or "".
func (b *benchmark) another(ctx context.Context, n int, tenant string) (orchestrator.Sandbox, error) {
	first, err := b.sandbox(ctx)
	if err != nil {
		return first, err
	}
	name := fmt.Sprintf("%s-%d", b.flags.sandbox, n)
	if i := slices.IndexFunc(b.more, func(sb orchestrator.Sandbox) bool { return sb.Name == name }); i >= 0 {
		if sb := b.more[i]; tenant == "" || sb.Tenant == tenant {
			return sb, nil
		}
		return orchestrator.Sandbox{}, fmt.Errorf("sandbox %s is of tenant %s, and one of %s was asked for", name, b.more[i].Tenant, tenant)
	}
	if err := b.dropOld(ctx, name); err != nil {
		return orchestrator.Sandbox{}, err
	}
	p := newProgress(b.app.err, b.s.secrets)
	defer p.stop()
	p.say("create sandbox %s", name)
	wish, err := b.s.wish(tenant)
	if err != nil {
		return orchestrator.Sandbox{}, err
	}
	sb, err := b.s.prov.Create(ctx, name, wish)
	if err != nil {
		return sb, err
	}
	b.more = append(b.more, sb)
	return sb, b.noted(sb)
}

// dropMore destroys the further sandboxes.
func (b *benchmark) dropMore(ctx context.Context) error {
	var errs []error
	for _, sb := range b.more {
		errs = append(errs, b.destroy(ctx, sb, false))
	}
	b.more = nil
	return errors.Join(errs...)
}

// pairs measures the networks, for the isolation experiment: from a sandbox of each
// of two tenants where there are two. The notes are what that does not cover.
func (b *benchmark) pairs(ctx context.Context) (pairs []trials.Pair, notes []string, err error) {
	tenants := b.s.cfg.Network.Tenants
	if len(tenants) == 0 {
		return nil, nil, nil
	}
	first, err := b.sandbox(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(tenants) == 1 {
		notes = append(notes, "network.tenants has one tenant, so there is no other to be kept from")
	}
	for _, t := range tenants {
		if t.Name == first.Tenant {
			continue
		}
		_, err := b.another(ctx, 2, t.Name)
		var open *orchestrator.UnsealedError
		if errors.As(err, &open) || ctx.Err() != nil {
			return nil, notes, err
		}
		if err != nil {
			notes = append(notes, fmt.Sprintf("there is no sandbox of another tenant than %s: %v", first.Tenant, err))
		}
		break
	}
	p := newProgress(b.app.err, b.s.secrets)
	defer p.stop()
	res, err := b.s.verify(ctx, p, "")
	notes = append(notes, res.Notes...)
	if err != nil {
		return nil, notes, err
	}
	for _, c := range res.Checks {
		pairs = append(pairs, trials.Pair{From: c.From, To: c.To, Protocol: string(c.Protocol), Expected: string(c.Expected), Observed: string(c.Observed)})
	}
	return pairs, notes, nil
}

// spare is what this machine keeps for itself, and over what QEMU needs beside a
// guest's memory, both in bytes.
const spare, over = 768 << 20, 128 << 20

// room is how many sandboxes this machine carries in the lab, the first one among
// them, and what bounds them. Without the lab it is 0.
func (b *benchmark) room() (most int, why string) {
	if b.lab == nil {
		return 0, "the sandboxes are not in the lab, and a cluster with other users is not filled up"
	}
	most, why = 2*runtime.NumCPU(), fmt.Sprintf("two for each of %d processors", runtime.NumCPU())
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return most, why
	}
	each := int64(b.s.cfg.Template.Memory) + over
	running := int64(len(b.more))
	if b.box != nil {
		running++
	}
	if fit := int((available(string(data))-spare)/each + running); fit < most {
		most, why = fit, fmt.Sprintf("%d MiB of memory for each", each>>20)
	}
	return most, why
}

// available is the memory that programs can have, in bytes; 0 = it is not said.
func available(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64) // else 0
			return kib << 10
		}
	}
	return 0
}
