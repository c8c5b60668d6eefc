package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"

	"savepoint/orchestrator"
)

// gateways is how many of a subnet's first hosts are left to gateways and
// jump hosts: nine, or one where the subnet has fewer than 32 addresses.
func gateways(subnet netip.Prefix) int {
	if subnet.Addr().BitLen()-subnet.Bits() < 5 {
		return 1
	}
	return 9
}

// ReserveAddress returns a host address of the subnet, durably reserved for
// the owner until ReleaseAddress. An owner that has one in this subnet gets
// the same again. Addresses go round, so that a released one comes last. The
// subnet's own address, its broadcast address and its first hosts are never
// given. ErrBusy when none is left.
func (j *Journal) ReserveAddress(ctx context.Context, subnet netip.Prefix, owner orchestrator.SandboxID) (netip.Addr, error) {
	if !subnet.IsValid() || owner == "" {
		return netip.Addr{}, fmt.Errorf("reserve an address of %s for %q: no subnet or no owner: %w", subnet, owner, orchestrator.ErrDenied)
	}
	subnet = subnet.Masked()
	var got netip.Addr
	err := j.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		used, mine, err := usedAddresses(ctx, tx, subnet, owner)
		if err != nil || mine.IsValid() {
			got = mine
			return err
		}
		var after string
		key := "cursor:address:" + subnet.String()
		err = tx.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = ?", key).Scan(&after)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if got = nextAddress(subnet, after, used); !got.IsValid() {
			return &errRefused{fmt.Errorf("reserve an address of %s: all %d are in use; use a larger subnet or destroy sandboxes: %w", subnet, len(used), orchestrator.ErrBusy)}
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", key, got.String()); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO addresses (address, subnet, owner, at, released) VALUES (?,?,?,?,0)
			ON CONFLICT (address) DO UPDATE SET subnet = excluded.subnet, owner = excluded.owner, at = excluded.at, released = 0`,
			got.String(), subnet.String(), string(owner), j.now().UnixNano())
		return err
	})
	if err != nil {
		return netip.Addr{}, err
	}
	return got, nil
}

// ReleaseAddress gives all addresses of the owner back. It may be repeated.
func (j *Journal) ReleaseAddress(ctx context.Context, owner orchestrator.SandboxID) error {
	return j.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE addresses SET released = ? WHERE owner = ? AND released = 0", j.now().UnixNano(), string(owner))
		return err
	})
}

// usedAddresses returns the addresses in use, of whatever subnet they were
// reserved in, and the one in this subnet that the owner already has.
func usedAddresses(ctx context.Context, tx *sql.Tx, subnet netip.Prefix, owner orchestrator.SandboxID) (map[netip.Addr]bool, netip.Addr, error) {
	rows, err := tx.QueryContext(ctx, "SELECT address, owner FROM addresses WHERE released = 0")
	if err != nil {
		return nil, netip.Addr{}, err
	}
	defer rows.Close()
	used := map[netip.Addr]bool{}
	var mine netip.Addr
	for rows.Next() {
		var text, by string
		if err := rows.Scan(&text, &by); err != nil {
			return nil, netip.Addr{}, err
		}
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, netip.Addr{}, err
		}
		if !subnet.Contains(a) {
			continue
		}
		used[a] = true
		if by == string(owner) {
			mine = a
		}
	}
	return used, mine, rows.Err()
}

// nextAddress returns the first free host after the last one given, going
// round, or the zero value.
func nextAddress(subnet netip.Prefix, after string, used map[netip.Addr]bool) netip.Addr {
	first := subnet.Addr()
	for range gateways(subnet) + 1 {
		first = first.Next()
	}
	usable := func(a netip.Addr) bool {
		return a.IsValid() && subnet.Contains(a) && !(a.Is4() && !subnet.Contains(a.Next()))
	}
	next := first
	if a, err := netip.ParseAddr(after); err == nil && usable(a) && !a.Less(first) {
		next = a.Next()
	}
	// One more than all that can be in the way, and the turn.
	for range len(used) + 2 {
		if !usable(next) {
			next = first
			if !usable(next) {
				return netip.Addr{}
			}
		}
		if !used[next] {
			return next
		}
		next = next.Next()
	}
	return netip.Addr{}
}
