package proxmox

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	pve "github.com/luthermonson/go-proxmox"
	"github.com/rs/zerolog"
)

// Config says which cluster to use and how. Either TokenID and TokenSecret or
// User and Password must be set.
type Config struct {
	URL string // "https://host:8006"; required, https only

	CAFile      string         // PEM file of the authority that signed the API's certificate
	CAs         *x509.CertPool // instead of CAFile; both empty = the system's authorities
	Fingerprint string         // SHA-256 of the API's certificate in hex, colons allowed: a pin on top of the CA

	TokenID     string // "user@realm!name"
	TokenSecret Secret
	User        string // "user@realm"
	Password    Secret

	Nodes    []string // nodes that may be used; empty = all
	Pool     string   // resource pool of every VM that is made; required for Clone and BuildTemplate
	Instance string   // id of this savepoint installation: lower-case letters, digits, dashes; at most 32
	// StateStorage holds the memory of snapshots of VMs that are cloned from now on;
	// "" = as the template says, else that of the disks.
	StateStorage string
	Bridge       string // bridge or vnet of net0 of every clone; "" = the template's

	PollInterval     time.Duration // longest pause between task polls; 0 = 200 ms, at most 250 ms
	TaskTimeout      time.Duration // how long a task is followed; 0 = 15 min
	CloneTimeout     time.Duration // the same for clones and template builds; 0 = 60 min
	RequestTimeout   time.Duration // one HTTP request; 0 = 60 s
	VerifyTimeout    time.Duration // how long a result may take to become visible after its task; 0 = 10 s
	ReconcileTimeout time.Duration // how long a lost write is looked for; 0 = 10 s
	LockWait         time.Duration // how long to try again while somebody holds a lock; 0 = 60 s, negative = not at all
	AgentTimeout     time.Duration // how long HostKey waits for the guest agent; 0 = 10 min
	ClonesPerStorage int           // clones at once on one storage; 0 = 2
	FullClones       int           // full clones of one template at once; 0 = 1
	LinkedClones     int           // linked clones of one template at once; 0 = 4
	PerNode          int           // clones, new snapshots and removals at once on one node; 0 = 8

	// Waiting is told when a call has to wait for its turn, whenever somebody
	// ahead ends, and when the turn has come. It must be quick and safe for
	// concurrent use; nil = nobody is told.
	Waiting func(Wait)

	Logger zerolog.Logger
	Now    func() time.Time // nil = time.Now
}

// Cluster is a connection to one Proxmox VE cluster. It is safe for concurrent
// use. It owns its idle connections: Close when done.
type Cluster struct {
	cfg       Config
	base      string // URL with /api2/json
	api       *pve.Client
	transport *http.Transport
	streams   *http.Client // the same transport without timeout and retry, for uploads
	auth      authorizer
	clock     *serverClock
	log       zerolog.Logger

	vms          keyed // one change per VM at a time
	fullClones   keyed // per template and target node
	linkedClones keyed
	storages     keyed // a few clones per storage at a time
	nodes        keyed // what loads a node and can wait
	builds       keyed // one template build at a time
	seen         seenTasks
	capable      sync.Map // orchestrator.VMRef → string: the disks that were found snapshottable
}

// agentName is what the adapter calls itself in its requests.
const agentName = "savepoint"

var (
	instanceRE = regexp.MustCompile(`\A[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?\z`)
	tokenRE    = regexp.MustCompile(`\A[^\s:/!=]+@[A-Za-z][A-Za-z0-9.\-_]+![A-Za-z][A-Za-z0-9.\-_]*\z`)
)

// Open checks cfg and prepares the connection. It reads CAFile and makes no
// request, so a cluster that is down is found by the first call.
func Open(cfg Config) (*Cluster, error) {
	base, err := cfg.validate()
	if err != nil {
		return nil, fmt.Errorf("open cluster %s: %w", cfg.URL, err)
	}
	tlsConf, err := tlsConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("open cluster %s: %w", cfg.URL, err)
	}
	clock := &serverClock{now: cfg.Now}
	tr := newTransport(cfg, tlsConf)
	c := &Cluster{
		cfg:       cfg,
		transport: tr,
		streams:   &http.Client{Transport: &tracker{next: tr, clock: clock}, CheckRedirect: refuseRedirect},
		clock:     clock,
		log:       cfg.Logger,

		vms:          keyed{width: 1, what: "vm ", told: cfg.Waiting},
		fullClones:   keyed{width: cfg.FullClones, what: "a full clone of ", told: cfg.Waiting},
		linkedClones: keyed{width: cfg.LinkedClones, what: "a linked clone of ", told: cfg.Waiting},
		storages:     keyed{width: cfg.ClonesPerStorage, what: "a clone on storage ", told: cfg.Waiting},
		nodes:        keyed{width: cfg.PerNode, what: "work on node ", told: cfg.Waiting},
		builds:       keyed{width: 1, what: "a template ", told: cfg.Waiting},
	}
	opts := []pve.Option{
		pve.WithHTTPClient(retrying(cfg, &tracker{next: tr, clock: clock})),
		pve.WithLogger(logAdapter{cfg.Logger}),
		pve.WithUserAgent(agentName),
		pve.WithRequestInterceptor(func(r *http.Request) error { return c.auth.authorize(r) }),
	}
	if cfg.TokenID != "" {
		c.auth = &tokenAuth{header: "PVEAPIToken=" + cfg.TokenID + "=" + string(cfg.TokenSecret)}
	} else {
		c.auth = &ticketAuth{user: cfg.User, password: cfg.Password, now: cfg.Now, post: func(ctx context.Context, in, out any) error {
			return c.api.Post(ctx, ticketPath, in, out)
		}}
	}
	c.base = base + "/api2/json"
	c.api = pve.NewClient(c.base, opts...)
	return c, nil
}

// Close gives up the idle connections. Tasks on the cluster go on.
func (c *Cluster) Close() { c.transport.CloseIdleConnections() }

// Instance returns the id of this installation, as stamped on what it owns.
func (c *Cluster) Instance() string { return c.cfg.Instance }

// principal is who our tasks belong to, as a UPID names it.
func (c *Cluster) principal() string {
	if c.cfg.TokenID != "" {
		return c.cfg.TokenID
	}
	return c.cfg.User
}

// validate checks the configuration, fills in defaults and returns the base
// URL without a path.
func (cfg *Config) validate() (string, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" || (strings.Trim(u.Path, "/") != "") || u.User != nil || u.RawQuery != "" {
		return "", errors.New("url must have the form https://host:8006")
	}
	switch {
	case cfg.TokenID != "" && cfg.User != "":
		return "", errors.New("both a token and a user are set; set one of them")
	case cfg.TokenID != "":
		if !tokenRE.MatchString(cfg.TokenID) {
			return "", errors.New("token id must have the form user@realm!name")
		}
		if cfg.TokenSecret == "" {
			return "", errors.New("token secret is empty; set it")
		}
	case cfg.User != "":
		if !strings.Contains(cfg.User, "@") {
			return "", errors.New("user must have the form user@realm")
		}
		if cfg.Password == "" {
			return "", errors.New("password is empty; set it, or use an API token")
		}
	default:
		return "", errors.New("no credentials; set an API token id and secret")
	}
	if !instanceRE.MatchString(cfg.Instance) {
		return "", errors.New("instance must be 1 to 32 lower-case letters, digits and dashes")
	}
	if cfg.PollInterval > 250*time.Millisecond {
		return "", errors.New("poll interval must be at most 250ms")
	}
	if cfg.CAFile != "" && cfg.CAs != nil {
		return "", errors.New("both a CA file and a CA pool are set; set one of them")
	}
	cfg.Fingerprint, err = normalFingerprint(cfg.Fingerprint)
	if err != nil {
		return "", err
	}
	setDefault(&cfg.PollInterval, 200*time.Millisecond)
	setDefault(&cfg.TaskTimeout, 15*time.Minute)
	setDefault(&cfg.CloneTimeout, time.Hour)
	setDefault(&cfg.RequestTimeout, time.Minute)
	setDefault(&cfg.VerifyTimeout, 10*time.Second)
	setDefault(&cfg.ReconcileTimeout, 10*time.Second)
	setDefault(&cfg.LockWait, time.Minute)
	setDefault(&cfg.AgentTimeout, 10*time.Minute)
	setDefault(&cfg.ClonesPerStorage, 2)
	setDefault(&cfg.FullClones, 1)
	setDefault(&cfg.LinkedClones, 4)
	setDefault(&cfg.PerNode, 8)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return "https://" + u.Host, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// readCAs returns the pool to verify the API against; nil means the system's.
func (cfg Config) readCAs() (*x509.CertPool, error) {
	if cfg.CAFile == "" {
		return cfg.CAs, nil
	}
	pem, err := os.ReadFile(cfg.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read ca_file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca_file %s holds no PEM certificate; use the cluster's /etc/pve/pve-root-ca.pem", cfg.CAFile)
	}
	return pool, nil
}

// logAdapter passes the library's messages on, except its debug messages:
// those hold request and response bodies.
type logAdapter struct{ log zerolog.Logger }

func (logAdapter) Debugf(string, ...any)       {}
func (l logAdapter) Infof(f string, v ...any)  { l.log.Debug().Msgf(f, v...) }
func (l logAdapter) Warnf(f string, v ...any)  { l.log.Warn().Msgf(f, v...) }
func (l logAdapter) Errorf(f string, v ...any) { l.log.Error().Msgf(f, v...) }
