package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The life of a ticket, and how far ahead of us its maker's clock may be.
const (
	ticketLife = 2 * time.Hour
	ticketSkew = 5 * time.Minute
)

// Ticket makes a ticket, "PVE:user@realm:HEXTIME::signature".
func (d *Directory) Ticket(user string, now time.Time) string {
	plain := fmt.Sprintf("PVE:%s:%08X", user, now.Unix())
	return plain + "::" + d.sign("ticket", plain)
}

// CheckTicket returns whose ticket it is.
func (d *Directory) CheckTicket(ticket string, now time.Time) (string, error) {
	plain, sig, ok := strings.Cut(ticket, "::")
	if !ok || !hmac.Equal([]byte(sig), []byte(d.sign("ticket", plain))) {
		return "", ErrUnauthenticated
	}
	parts := strings.Split(plain, ":")
	if len(parts) != 3 || parts[0] != "PVE" || !fresh(parts[2], now) {
		return "", ErrUnauthenticated
	}
	if !d.State().Users[parts[1]].active(now) {
		return "", ErrUnauthenticated
	}
	return parts[1], nil
}

// CSRF makes the token that writes with a ticket must carry, "HEXTIME:signature".
func (d *Directory) CSRF(user string, now time.Time) string {
	stamp := fmt.Sprintf("%08X", now.Unix())
	return stamp + ":" + d.sign("csrf", stamp+":"+user)
}

// CheckCSRF reports whether the token is good for the user.
func (d *Directory) CheckCSRF(token, user string, now time.Time) bool {
	stamp, sig, ok := strings.Cut(token, ":")
	return ok && hmac.Equal([]byte(sig), []byte(d.sign("csrf", stamp+":"+user))) && fresh(stamp, now)
}

func (d *Directory) sign(kind, text string) string {
	m := hmac.New(sha256.New, d.Key)
	m.Write([]byte(kind + "\x00" + text))
	return base64.StdEncoding.EncodeToString(m.Sum(nil))
}

func fresh(stamp string, now time.Time) bool {
	t, err := strconv.ParseInt(stamp, 16, 64)
	if err != nil {
		return false
	}
	age := now.Sub(time.Unix(t, 0))
	return age < ticketLife && age > -ticketSkew
}
