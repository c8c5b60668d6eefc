package pve

import (
	"crypto/sha1"
	"fmt"
	"strings"

	"savepoint/testbed/pve/access"
)

// postTicket is POST /access/ticket.
func postTicket(c *call) (any, error) {
	s := c.s
	user := c.p.Str("username")
	if realm := c.p.Str("realm"); realm != "" && !strings.Contains(user, "@") {
		user += "@" + realm
	}
	password, now := c.p.Str("password"), s.cfg.Now()
	if err := s.access.Login(user, password); err != nil {
		// a valid ticket of the user serves as a password, to get a fresh one
		if owner, terr := s.access.CheckTicket(password, now); terr != nil || owner != user {
			return nil, access.ErrUnauthenticated
		}
	}
	return map[string]any{
		"username": user, "ticket": s.access.Ticket(user, now),
		"CSRFPreventionToken": s.access.CSRF(user, now), "cap": s.access.Capabilities(user),
	}, nil
}

// getTicket is GET /access/ticket, which exists to draw a login page.
func getTicket(*call) (any, error) { return nil, nil }

// realms are the two that every cluster has, by name and purpose.
var realms = [][2]string{{"pam", "Linux PAM standard authentication"}, {"pve", "Proxmox VE authentication server"}}

// listDomains is GET /access/domains.
func listDomains(*call) (any, error) {
	var out []map[string]any
	for _, r := range realms {
		out = append(out, map[string]any{"realm": r[0], "type": r[0], "comment": r[1]})
	}
	return out, nil
}

// readDomain is GET /access/domains/{realm}.
func readDomain(c *call) (any, error) {
	for _, r := range realms {
		if r[0] == c.p.Str("realm") {
			return map[string]any{"type": r[0], "comment": r[1], "digest": fmt.Sprintf("%x", sha1.Sum(fmt.Append(nil, realms)))}, nil
		}
	}
	return nil, fail("domain '%s' does not exist", c.p.Str("realm"))
}

// permissions is GET /access/permissions.
func permissions(c *call) (any, error) {
	who := c.who.name
	if user := c.p.Str("userid"); user != "" && user != who {
		if err := c.need("/access", "Sys.Audit"); err != nil {
			return nil, err
		}
		who = user
	}
	return c.s.access.Permissions(who, c.p.Str("path")), nil
}
