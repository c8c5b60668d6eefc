package proxmox

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// Certificate is what a node presents to clients of its API.
type Certificate struct {
	File string
	Ends time.Time
	// Distrust says why a client with our configuration would not accept it,
	// beside its time; "" when it would.
	Distrust string
}

// certificate asks a node which certificate it presents, and judges it as we
// would when it became our entry node. That the entry node's is good now is
// known from the question.
func (c *Cluster) certificate(ctx context.Context, node string) (Certificate, error) {
	var list []struct {
		File string  `json:"filename"`
		PEM  string  `json:"pem"`
		Ends flexInt `json:"notafter"`
	}
	const op = "ask the certificate of"
	if err := c.get(ctx, nodePath(node)+"/certificates/info", nil, &list); err != nil {
		return Certificate{}, explain(op, "node "+node, err, false)
	}
	var found Certificate
	var text string
	for _, e := range list { // one of its own goes before the one that the cluster made
		if e.File == "pveproxy-ssl.pem" || e.File == "pve-ssl.pem" && found.File == "" {
			found, text = Certificate{File: e.File, Ends: time.Unix(int64(e.Ends), 0)}, e.PEM
		}
	}
	if found.File == "" {
		return found, fmt.Errorf("%s node %s: it names none", op, node)
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil {
		return found, nil // it tells the time alone
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return found, fmt.Errorf("%s node %s: %w", op, node, err)
	}
	found.Ends = cert.NotAfter
	found.Distrust = c.distrust(cert, rest)
	return found, nil
}

// distrust says why the certificate would be refused for something else than
// its time and name: those are judged by who asks.
func (c *Cluster) distrust(cert *x509.Certificate, more []byte) string {
	roots, err := c.cfg.readCAs()
	if err != nil {
		return err.Error()
	}
	between := x509.NewCertPool()
	between.AppendCertsFromPEM(more)
	_, err = cert.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: middle(cert)})
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "" // the authority's time is not that of the certificate
	case errors.As(err, &unknown):
		return "it is not signed by an authority that is trusted here (issuer " + cert.Issuer.String() + ")"
	case err != nil:
		return err.Error()
	}
	return ""
}

// middle is a time at which the certificate is good.
func middle(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 2)
}
