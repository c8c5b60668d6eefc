package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"

	"savepoint/network"
	"savepoint/orchestrator"
)

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
		last, _ := netip.ParseAddr(after) // none yet: start at the first
		if got = network.NextAddress(subnet, last, used); !got.IsValid() {
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
