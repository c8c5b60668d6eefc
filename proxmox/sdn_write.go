package proxmox

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	pve "github.com/luthermonson/go-proxmox"

	"savepoint/network"
	"savepoint/orchestrator"
)

// Lock takes the cluster's lock on its networks. PVE 8 has none. Without
// pending the cluster itself is asked whether there are edits, which finds
// also those that no list shows.
func (s *SDN) Lock(ctx context.Context, pending bool) (token string, err error) {
	if has, err := s.modern(ctx); err != nil || !has {
		return "", err
	}
	params := map[string]any{"allow-pending": flagOf(pending)}
	err = s.c.again(ctx, func() error {
		return explainSDN("lock", networks, s.c.request(ctx, func() error { return s.c.api.Post(ctx, sdnPath+"/lock", params, &token) }), true)
	})
	return token, err
}

func flagOf(on bool) int {
	if on {
		return 1
	}
	return 0
}

// Unlock gives the lock back. Doing it twice is the same as once, so it is
// tried again until an answer comes through.
func (s *SDN) Unlock(ctx context.Context, token string) error {
	for n := 0; ; n++ {
		err := explainSDN("unlock", networks, s.c.request(ctx, func() error {
			return s.c.api.Delete(ctx, withQuery(sdnPath+"/lock", url.Values{"lock-token": {token}}), nil)
		}), true)
		if err == nil || says(err, otherTokenRE) { // somebody took it since: it was not ours any more
			return nil
		}
		if n == 3 || !errors.Is(err, orchestrator.ErrUnknownOutcome) && !errors.Is(err, orchestrator.ErrUnavailable) && !retriable(err) {
			return err
		}
		if pause(ctx, backoff(n, 200*time.Millisecond, time.Second)) != nil {
			return err
		}
	}
}

// Write makes one change to the pending configuration.
func (s *SDN) Write(ctx context.Context, token string, ch network.Change) error {
	all := sdnPath + "/" + string(ch.Kind) + "s"
	if ch.Kind == network.KindSubnet {
		all = sdnPath + "/vnets/" + url.PathEscape(ch.Parent) + "/subnets"
	}
	one := all + "/" + url.PathEscape(ch.ID)
	params := map[string]any{}
	for key, v := range ch.Fields {
		params[key] = v
	}
	if token != "" {
		params["lock-token"] = token
	}
	var send func() error
	switch ch.Op {
	case network.OpCreate:
		params[string(ch.Kind)] = ch.ID
		if ch.Kind == network.KindSubnet {
			delete(params, "vnet") // it is in the path
			params["type"], params["subnet"] = "subnet", cidrOf(ch.ID)
		}
		send = func() error { return s.c.api.Post(ctx, all, params, nil) }
	case network.OpUpdate:
		if len(ch.Unset) > 0 {
			params["delete"] = strings.Join(ch.Unset, ",")
		}
		send = func() error { return s.c.api.Put(ctx, one, params, nil) }
	case network.OpDelete:
		q := url.Values{}
		if token != "" {
			q.Set("lock-token", token)
		}
		send = func() error { return s.c.api.Delete(ctx, withQuery(one, q), nil) }
	default:
		return nil
	}
	return s.c.again(ctx, func() error {
		return explainSDN(string(ch.Op)+" "+string(ch.Kind), ch.ID, s.c.request(ctx, send), true)
	})
}

// cidrOf is the network that a subnet's id names: "zone1-10.0.0.0-24".
func cidrOf(id string) string {
	_, rest, _ := strings.Cut(id, "-")
	i := strings.LastIndexByte(rest, '-')
	if i < 0 {
		return rest
	}
	return rest[:i] + "/" + rest[i+1:]
}

// Apply commits what is pending, gives the lock back with it, and follows what
// the cluster sets going: its own task, and the reload of every node that is
// online as far as the token may see it.
func (s *SDN) Apply(ctx context.Context, token string) (map[string]string, error) {
	const op = "apply"
	var body any // PVE 8 takes no parameters
	if token != "" {
		body = map[string]any{"lock-token": token, "release-lock": 1}
	}
	var text string
	err := s.c.again(ctx, func() error {
		return explainSDN(op, networks, s.c.request(ctx, func() error { return s.c.api.Put(ctx, sdnPath, body, &text) }), true)
	})
	if err != nil {
		return nil, err
	}
	u, err := parseUPID(text)
	if err != nil {
		return nil, &failure{op: op, subject: networks, class: orchestrator.ErrUnknownOutcome, cause: err.Error(), mend: "look at the nodes' zones"}
	}
	s.c.seen.add(u.text)
	if err := explainSDN(op, networks, s.c.follow(ctx, op, networks, u, s.c.cfg.TaskTimeout), true); err != nil {
		return nil, err
	}
	return s.reloads(ctx, u)
}

// reloads follows the reloads that an apply began, each node's latest, and
// returns how they failed. They belong to root@pam: a token sees them only with
// Sys.Audit on the node.
func (s *SDN) reloads(ctx context.Context, apply upid) (map[string]string, error) {
	failed := map[string]string{}
	nodes, err := s.c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	since := apply.started.Add(-5 * time.Second) // the nodes' clocks differ a little
	for _, n := range nodes {
		if !n.Online {
			continue
		}
		entries, err := s.c.listTasks(ctx, n.Name, "srvreload", 0, since)
		if err != nil {
			s.c.log.Warn().Err(err).Str("node", n.Name).Msg("the node's reload cannot be looked for")
		}
		for _, e := range entries { // the newest first
			u, err := parseUPID(e.UPID)
			if err != nil || u.id != "networking" {
				continue
			}
			var task *pve.TaskFailedError
			if errors.As(s.c.follow(ctx, "reload", "node "+n.Name, u, s.c.cfg.TaskTimeout), &task) {
				failed[n.Name] = textOf(task)
			}
			break
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, &failure{op: "apply", subject: networks, class: orchestrator.ErrUnknownOutcome, err: err, cause: "stopped waiting for the nodes: " + err.Error(), mend: "they go on; savepoint network plan tells"}
	}
	for _, node := range slices.Sorted(maps.Keys(failed)) {
		s.c.log.Warn().Str("node", node).Str("cause", failed[node]).Msg("the node's reload failed")
	}
	return failed, nil
}
